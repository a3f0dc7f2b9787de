//! The operations, each as a call: started if the program wants a handle, else carried out.

use super::memory::Lent;
use super::operation::lacuna_group_operation;
use super::options::{self, lacuna_group_options};
use super::{lacuna_group, names, operation_failure};
use crate::outcome::{Failure, code};
use crate::pointer::{self, Out};
use lacuna_collective::{Collective, Element, Op};
use std::ffi::{c_int, c_void};

/// What every operation has.
struct Call {
    group: *mut lacuna_group,
    input: *const c_void,
    output: *mut c_void,
    element: u32,
    options: *const lacuna_group_options,
    operation: *mut *mut lacuna_group_operation,
}

/// How many elements an operation has at this rank.
#[derive(Debug, PartialEq, Eq)]
struct Extent {
    input: usize,
    output: usize,
    /// Of the memory that is both; `None` if it cannot be in place.
    in_place: Option<usize>,
}

fn too_many() -> Failure {
    Failure::usage("the counts add up to more than there can be")
}

fn extent(collective: &Collective, rank: usize) -> Result<Extent, Failure> {
    let sum = |counts: &[usize]| {
        counts.iter().try_fold(0usize, |sum, count| sum.checked_add(*count)).ok_or_else(too_many)
    };
    let at = |input, output, in_place| Extent { input, output, in_place };
    Ok(match collective {
        Collective::AllReduce { count } => at(*count, *count, Some(*count)),
        Collective::ReduceScatter { counts } => at(sum(counts)?, counts[rank], Some(sum(counts)?)),
        Collective::AllGather { counts } => at(counts[rank], sum(counts)?, Some(sum(counts)?)),
        Collective::Broadcast { root, count } => {
            at(if *root == rank { *count } else { 0 }, *count, Some(*count))
        }
        Collective::Reduce { root, count } => {
            at(*count, if *root == rank { *count } else { 0 }, Some(*count))
        }
        Collective::Gather { root, counts } if *root == rank => {
            at(counts[rank], sum(counts)?, Some(sum(counts)?))
        }
        Collective::Gather { counts, .. } => at(counts[rank], 0, Some(counts[rank])),
        Collective::Scatter { root, counts } if *root == rank => {
            at(sum(counts)?, counts[rank], Some(sum(counts)?))
        }
        Collective::Scatter { counts, .. } => at(0, counts[rank], Some(counts[rank])),
        Collective::AllToAll { sent, received } => at(sum(sent)?, sum(received)?, None),
        Collective::Barrier => at(0, 0, Some(0)),
        Collective::Exchange { to, from } => {
            let count = |peer: &Option<(usize, usize)>| peer.map_or(0, |(_, count)| count);
            at(count(to), count(from), None)
        }
    })
}

impl Call {
    /// Starts the operation, or carries it out.
    ///
    /// # Safety
    /// As for [`lacuna_group_all_reduce`], of the memory that the operation has.
    unsafe fn go(
        self,
        op: Option<u32>,
        collective: impl FnOnce(usize) -> Result<Collective, Failure>,
    ) -> Result<(), Failure> {
        // SAFETY: the caller's promise.
        let group = unsafe { pointer::object(self.group, "group") }?;
        // SAFETY: the caller's promise.
        let out = unsafe { Out::optional(self.operation, "operation") }?;
        // SAFETY: the caller's promise.
        let options = unsafe { options::given(self.options) }?;
        let element = names::element(self.element)?;
        let op = op.map_or(Ok(Op::Sum), names::reduction)?;
        group.with(|current| {
            let collective = collective(current.ranks())?;
            // SAFETY: the caller's promise.
            let lent = unsafe { self.lend(&extent(&collective, current.rank())?, element) }?;
            let started =
                current.start_shared(&collective, (element, op), Box::new(lent), &options);
            let started = started.map_err(|error| operation_failure(&error))?;
            match out {
                Some(out) => lacuna_group_operation::give(group, started, out),
                None => started.wait().map(drop).map_err(|error| operation_failure(&error)),
            }
        })
    }

    /// The operation's memory.
    ///
    /// # Safety
    /// As for [`Lent::new`].
    unsafe fn lend(&self, extent: &Extent, element: Element) -> Result<Lent, Failure> {
        let bytes =
            |elements: usize| elements.checked_mul(element.size_bytes()).ok_or_else(too_many);
        let is_same = self.input == self.output.cast_const() && extent.input == extent.output;
        let has_none = extent.input > 0 && (self.input.is_null() || is_same);
        let (input, output) = match extent.in_place.filter(|_| has_none) {
            Some(elements) => (0, elements),
            None => (extent.input, extent.output),
        };
        // SAFETY: the caller's promise.
        unsafe { Lent::new((self.input, bytes(input)?), (self.output, bytes(output)?)) }
    }
}

fn elements(count: u64) -> Result<usize, Failure> {
    usize::try_from(count).map_err(|_| too_many())
}

/// A count for each rank.
///
/// # Safety
/// If not NULL, `counts` points to so many numbers.
unsafe fn each(count: u64, counts: *const u64, ranks: usize) -> Result<Vec<usize>, Failure> {
    if counts.is_null() {
        return Ok(vec![elements(count)?; ranks]);
    }
    // SAFETY: the caller's promise; the first one shows that it is aligned.
    unsafe { pointer::shared(counts, "counts") }?;
    // SAFETY: the caller's promise.
    let counts = unsafe { std::slice::from_raw_parts(counts, ranks) };
    counts.iter().map(|count| elements(*count)).collect()
}

/// Every rank gets the reduction of all inputs, of count elements each: element is of enum
/// lacuna_element, reduction of enum lacuna_reduction. options may be NULL.
///
/// What all operations of a group have in common: all ranks start the same ones in the same
/// order, from one thread at a time. If operation is NULL the call waits until it is over,
/// and answers how it went (lacuna_group_operation_wait()); else the operation goes on, and
/// operation gets what it is waited for and freed by. Memory is used in place, without a
/// copy: until the operation is over, or the group was freed or formed again, the input must
/// not change, and the output not be touched. If input is NULL though the operation has one,
/// it is in place: then the output has the length of the longer of the two, and this rank's
/// part of it is the shorter. Otherwise the two must not overlap. LACUNA_USAGE changes
/// nothing; when the group has failed every call answers LACUNA_PEER or LACUNA_DEADLINE.
///
/// # Safety
/// group was not freed; input and output point to as many elements as the text says, which
/// nobody else changes until the operation is over; options is NULL or points to its struct;
/// operation is NULL or points to a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_group_all_reduce(
    group: *mut lacuna_group,
    input: *const c_void,
    output: *mut c_void,
    count: u64,
    element: u32,
    reduction: u32,
    options: *const lacuna_group_options,
    operation: *mut *mut lacuna_group_operation,
) -> c_int {
    code(|| {
        let call = Call { group, input, output, element, options, operation };
        let collective = |_| Ok(Collective::AllReduce { count: elements(count)? });
        // SAFETY: the caller's promise.
        unsafe { call.go(Some(reduction), collective) }
    })
}

/// Every rank gets its part of the reduction of all inputs: of counts[rank] elements, or of
/// count if counts is NULL. An input has the parts of all ranks, one behind the other. The
/// rest as lacuna_group_all_reduce().
///
/// # Safety
/// As for lacuna_group_all_reduce(); counts is NULL or points to a number for each rank.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_group_reduce_scatter(
    group: *mut lacuna_group,
    input: *const c_void,
    output: *mut c_void,
    count: u64,
    counts: *const u64,
    element: u32,
    reduction: u32,
    options: *const lacuna_group_options,
    operation: *mut *mut lacuna_group_operation,
) -> c_int {
    code(|| {
        let call = Call { group, input, output, element, options, operation };
        let collective = |ranks| {
            // SAFETY: the caller's promise.
            Ok(Collective::ReduceScatter { counts: unsafe { each(count, counts, ranks) }? })
        };
        // SAFETY: the caller's promise.
        unsafe { call.go(Some(reduction), collective) }
    })
}

/// Every rank gets the inputs of all, one behind the other: of counts[rank] elements, or of
/// count if counts is NULL. The rest as lacuna_group_all_reduce().
///
/// # Safety
/// As for lacuna_group_all_reduce(); counts is NULL or points to a number for each rank.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_group_all_gather(
    group: *mut lacuna_group,
    input: *const c_void,
    output: *mut c_void,
    count: u64,
    counts: *const u64,
    element: u32,
    options: *const lacuna_group_options,
    operation: *mut *mut lacuna_group_operation,
) -> c_int {
    code(|| {
        let call = Call { group, input, output, element, options, operation };
        let collective = |ranks| {
            // SAFETY: the caller's promise.
            Ok(Collective::AllGather { counts: unsafe { each(count, counts, ranks) }? })
        };
        // SAFETY: the caller's promise.
        unsafe { call.go(None, collective) }
    })
}

/// Every rank gets the input of rank root, of count elements. The input of others does not
/// count. The rest as lacuna_group_all_reduce().
///
/// # Safety
/// As for lacuna_group_all_reduce().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_group_broadcast(
    group: *mut lacuna_group,
    input: *const c_void,
    output: *mut c_void,
    count: u64,
    root: u32,
    element: u32,
    options: *const lacuna_group_options,
    operation: *mut *mut lacuna_group_operation,
) -> c_int {
    code(|| {
        let call = Call { group, input, output, element, options, operation };
        let collective = |ranks| {
            let root = known(root, "root", ranks)?;
            Ok(Collective::Broadcast { root, count: elements(count)? })
        };
        // SAFETY: the caller's promise.
        unsafe { call.go(None, collective) }
    })
}

/// Rank root gets the reduction of all inputs, of count elements each. The output of others
/// does not count. The rest as lacuna_group_all_reduce().
///
/// # Safety
/// As for lacuna_group_all_reduce().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_group_reduce(
    group: *mut lacuna_group,
    input: *const c_void,
    output: *mut c_void,
    count: u64,
    root: u32,
    element: u32,
    reduction: u32,
    options: *const lacuna_group_options,
    operation: *mut *mut lacuna_group_operation,
) -> c_int {
    code(|| {
        let call = Call { group, input, output, element, options, operation };
        let collective = |ranks| {
            let root = known(root, "root", ranks)?;
            Ok(Collective::Reduce { root, count: elements(count)? })
        };
        // SAFETY: the caller's promise.
        unsafe { call.go(Some(reduction), collective) }
    })
}

/// Rank root gets the inputs of all, one behind the other: of counts[rank] elements, or of
/// count if counts is NULL. The output of others does not count. The rest as
/// lacuna_group_all_reduce().
///
/// # Safety
/// As for lacuna_group_all_reduce(); counts is NULL or points to a number for each rank.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_group_gather(
    group: *mut lacuna_group,
    input: *const c_void,
    output: *mut c_void,
    count: u64,
    counts: *const u64,
    root: u32,
    element: u32,
    options: *const lacuna_group_options,
    operation: *mut *mut lacuna_group_operation,
) -> c_int {
    code(|| {
        let call = Call { group, input, output, element, options, operation };
        let collective = |ranks| {
            let root = known(root, "root", ranks)?;
            // SAFETY: the caller's promise.
            Ok(Collective::Gather { root, counts: unsafe { each(count, counts, ranks) }? })
        };
        // SAFETY: the caller's promise.
        unsafe { call.go(None, collective) }
    })
}

/// Every rank gets its part of the input of rank root, which has the parts of all, one
/// behind the other: of counts[rank] elements, or of count if counts is NULL. The input of
/// others does not count. The rest as lacuna_group_all_reduce().
///
/// # Safety
/// As for lacuna_group_all_reduce(); counts is NULL or points to a number for each rank.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_group_scatter(
    group: *mut lacuna_group,
    input: *const c_void,
    output: *mut c_void,
    count: u64,
    counts: *const u64,
    root: u32,
    element: u32,
    options: *const lacuna_group_options,
    operation: *mut *mut lacuna_group_operation,
) -> c_int {
    code(|| {
        let call = Call { group, input, output, element, options, operation };
        let collective = |ranks| {
            let root = known(root, "root", ranks)?;
            // SAFETY: the caller's promise.
            Ok(Collective::Scatter { root, counts: unsafe { each(count, counts, ranks) }? })
        };
        // SAFETY: the caller's promise.
        unsafe { call.go(None, collective) }
    })
}

/// Every rank sends a part of its input to every rank and gets a part of everybody's: of
/// count elements each, or of as many as sent and received say if they are not NULL. Parts
/// are one behind the other, in the order of ranks. It cannot be in place. The rest as
/// lacuna_group_all_reduce().
///
/// # Safety
/// As for lacuna_group_all_reduce(); sent and received are NULL or point to a number for
/// each rank.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_group_all_to_all(
    group: *mut lacuna_group,
    input: *const c_void,
    output: *mut c_void,
    count: u64,
    sent: *const u64,
    received: *const u64,
    element: u32,
    options: *const lacuna_group_options,
    operation: *mut *mut lacuna_group_operation,
) -> c_int {
    code(|| {
        let call = Call { group, input, output, element, options, operation };
        let collective = |ranks| {
            if sent.is_null() != received.is_null() {
                return Err(Failure::usage(
                    "of sent and received one is NULL: give both, or none of them",
                ));
            }
            // SAFETY: the caller's promise.
            let each = |counts| unsafe { each(count, counts, ranks) };
            Ok(Collective::AllToAll { sent: each(sent)?, received: each(received)? })
        };
        // SAFETY: the caller's promise.
        unsafe { call.go(None, collective) }
    })
}

/// Sends sent elements of the input to rank to, and receives received elements into the
/// output from rank from. Either may be UINT32_MAX, for nobody; both, for a rank that has no
/// part. Like all operations it is started by every rank of the group. It cannot be in
/// place. The rest as lacuna_group_all_reduce().
///
/// # Safety
/// As for lacuna_group_all_reduce().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_group_exchange(
    group: *mut lacuna_group,
    input: *const c_void,
    to: u32,
    sent: u64,
    output: *mut c_void,
    from: u32,
    received: u64,
    element: u32,
    options: *const lacuna_group_options,
    operation: *mut *mut lacuna_group_operation,
) -> c_int {
    code(|| {
        let call = Call { group, input, output, element, options, operation };
        let collective = |_| {
            let peer = |peer: u32, count| match peer {
                u32::MAX => Ok(None),
                peer => Ok(Some((peer as usize, elements(count)?))),
            };
            Ok(Collective::Exchange { to: peer(to, sent)?, from: peer(from, received)? })
        };
        // SAFETY: the caller's promise.
        unsafe { call.go(None, collective) }
    })
}

/// No rank goes on before all have come. The rest as lacuna_group_all_reduce().
///
/// # Safety
/// As for lacuna_group_all_reduce().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_group_barrier(
    group: *mut lacuna_group,
    options: *const lacuna_group_options,
    operation: *mut *mut lacuna_group_operation,
) -> c_int {
    code(|| {
        let (input, output) = (std::ptr::null(), std::ptr::null_mut());
        let element = Element::U8 as u32;
        let call = Call { group, input, output, element, options, operation };
        // SAFETY: the caller's promise.
        unsafe { call.go(None, |_| Ok(Collective::Barrier)) }
    })
}

/// A rank that the program names.
fn known(rank: u32, name: &str, ranks: usize) -> Result<usize, Failure> {
    let rank = rank as usize;
    if rank >= ranks {
        return Err(Failure::usage(format!("{name} is rank {rank} of {ranks} ranks")));
    }
    Ok(rank)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lacuna_schedule::schedule::{Algorithm, Request, plan};

    /// The lengths here are those of the schedules.
    #[test]
    fn memory_has_the_length_that_schedules_want() {
        let counts = vec![3, 0, 5];
        let all = [
            (Collective::AllReduce { count: 7 }, Algorithm::Ring),
            (Collective::ReduceScatter { counts: counts.clone() }, Algorithm::Ring),
            (Collective::AllGather { counts: counts.clone() }, Algorithm::Ring),
            (Collective::Broadcast { root: 2, count: 4 }, Algorithm::Tree),
            (Collective::Reduce { root: 1, count: 4 }, Algorithm::Tree),
            (Collective::Gather { root: 2, counts: counts.clone() }, Algorithm::Direct),
            (Collective::Scatter { root: 0, counts: counts.clone() }, Algorithm::Direct),
            (Collective::Barrier, Algorithm::Doubling),
            (Collective::AllToAll { sent: vec![1; 3], received: vec![1; 3] }, Algorithm::Direct),
        ];
        for (collective, algorithm) in &all {
            for rank in 0..3 {
                let request = |is_in_place| Request {
                    collective,
                    algorithm,
                    rank,
                    ranks: 3,
                    is_average: false,
                    is_in_place,
                };
                let table = plan(&request(false)).unwrap();
                let in_place = plan(&request(true)).ok().map(|table| table.output);
                let expected = Extent { input: table.input, output: table.output, in_place };
                assert_eq!(extent(collective, rank).unwrap(), expected, "{collective:?} {rank}");
            }
        }
        let counts = vec![usize::MAX, 1];
        assert!(extent(&Collective::AllGather { counts }, 0).is_err());
    }
}
