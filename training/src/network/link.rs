//! Operations between ranks over vectors of f32.

use super::delivery::Delivery;
use lacuna_code::hadamard::{bytes_of, bytes_of_mut};
use lacuna_collective::{
    Algorithm, Budget, Buffers, Collective, Element, Encode, Group, Op, Operation, Options, Reason,
    Report,
};
use std::time::Duration;

/// This rank's end of a group.
#[derive(Debug)]
pub struct Link {
    group: Group,
    delivery: Delivery,
}

/// The memory of an operation.
struct Floats {
    input: Vec<f32>,
    output: Vec<f32>,
}

impl Buffers for Floats {
    fn input(&self) -> &[u8] {
        bytes_of(&self.input)
    }

    fn output(&self) -> &[u8] {
        bytes_of(&self.output)
    }

    fn split(&mut self) -> (&[u8], &mut [u8]) {
        (bytes_of(&self.input), bytes_of_mut(&mut self.output))
    }
}

/// An operation that goes on.
#[derive(Debug)]
pub struct Pending<'l> {
    operation: Operation<'l>,
    ranks: usize,
}

/// An operation that is over.
#[derive(Debug, Clone, PartialEq)]
pub struct Received {
    /// The result.
    pub values: Vec<f32>,
    /// Bytes that were to come to this rank, over all hops.
    pub bytes: u64,
    /// Those that did not.
    pub lost_bytes: u64,
    /// Those of them behind the last byte that came, of receives that ended by their deadline: what was late,
    /// rather than lost on the way.
    pub late_bytes: u64,
    /// Receives that ended by their deadline.
    pub cut_off: usize,
    /// The time it had, if it was to end with what was there.
    pub budget: Option<Duration>,
    /// Fraction of the contributions, one per rank and element of the result, that the result lacks, or whose
    /// fate is not known.
    pub missing: f64,
}

impl Link {
    pub(super) fn new(group: Group, delivery: Delivery) -> Self {
        Self { group, delivery }
    }

    /// This rank.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.group.rank()
    }

    /// How many ranks there are.
    #[must_use]
    pub fn ranks(&self) -> usize {
        self.group.ranks()
    }

    /// What is done about losses.
    #[must_use]
    pub fn delivery(&self) -> &Delivery {
        &self.delivery
    }

    /// Starts an operation; its result has so many elements. All ranks start the same ones in the same order. `tensors` are the
    /// lengths of the tensors that the operation's elements consist of, which the transform does not mix; none: it is one.
    ///
    /// # Errors
    /// When the operation makes no sense or the group has failed.
    pub fn start(
        &self,
        collective: &Collective,
        op: Op,
        (input, tensors): (Vec<f32>, &[usize]),
        output: usize,
    ) -> anyhow::Result<Pending<'_>> {
        self.start_by(None, collective, op, (input, tensors), output)
    }

    /// The same by a schedule.
    ///
    /// # Errors
    /// As [`Link::start`].
    pub fn start_by(
        &self,
        algorithm: Option<Algorithm>,
        collective: &Collective,
        op: Op,
        (input, tensors): (Vec<f32>, &[usize]),
        output: usize,
    ) -> anyhow::Result<Pending<'_>> {
        self.start_within(
            self.delivery.budget(),
            algorithm,
            collective,
            op,
            (input, tensors),
            output,
        )
    }

    fn start_within(
        &self,
        budget: Budget,
        algorithm: Option<Algorithm>,
        collective: &Collective,
        op: Op,
        (input, tensors): (Vec<f32>, &[usize]),
        output: usize,
    ) -> anyhow::Result<Pending<'_>> {
        let encode = || Encode { tensors: tensors.to_vec(), ..Encode::default() };
        let options = Options {
            algorithm,
            budget,
            encode: self.delivery.has_transform().then(encode),
            ..Options::default()
        };
        let buffers = Box::new(Floats { input, output: vec![0.0; output] });
        let operation = self.group.start(collective, (Element::F32, op), buffers, &options)?;
        Ok(Pending { operation, ranks: self.ranks() })
    }

    /// Averages a vector, which consists of tensors of these lengths, over all ranks.
    ///
    /// # Errors
    /// When a rank is gone.
    pub fn average(&self, values: Vec<f32>, tensors: &[usize]) -> anyhow::Result<Received> {
        let count = values.len();
        self.start(&Collective::AllReduce { count }, Op::Average, (values, tensors), count)?.wait()
    }

    /// Adds up a vector over all ranks. A fixed budget is multiplied by `times`: it is that of another length.
    ///
    /// # Errors
    /// When a rank is gone.
    pub fn sum(&self, values: Vec<f32>, times: f64) -> anyhow::Result<Received> {
        let count = values.len();
        let budget = match self.delivery.budget() {
            Budget::Fixed(time) => Budget::Fixed(time.mul_f64(times)),
            budget => budget,
        };
        let collective = Collective::AllReduce { count };
        self.start_within(budget, None, &collective, Op::Sum, (values, &[]), count)?.wait()
    }

    /// Gives all ranks the first one's numbers, of which they know how many there are.
    ///
    /// # Errors
    /// When a rank is gone.
    ///
    /// # Panics
    /// If a number is too large for an f32 to have it exactly.
    pub fn tell(&self, numbers: &[u32]) -> anyhow::Result<Vec<u32>> {
        assert!(numbers.iter().all(|number| *number < 1 << 24), "numbers that an f32 has exactly");
        let count = numbers.len();
        let collective = Collective::Broadcast { root: 0, count };
        let input = match self.rank() {
            0 => numbers.iter().map(|number| *number as f32).collect(),
            _ => Vec::new(),
        };
        let received = self.start(&collective, Op::Sum, (input, &[]), count)?.wait()?;
        Ok(received.values.into_iter().map(|number| number as u32).collect())
    }

    /// Waits until all ranks are here.
    ///
    /// # Errors
    /// When a rank is gone.
    pub fn barrier(&self) -> anyhow::Result<()> {
        self.group.barrier()?;
        Ok(())
    }
}

impl Pending<'_> {
    /// Waits until it is over.
    ///
    /// # Errors
    /// When a rank is gone.
    pub fn wait(self) -> anyhow::Result<Received> {
        let outcome = self.operation.wait()?;
        let bytes = outcome.buffers.output();
        let mut values = vec![0.0; bytes.len() / 4];
        bytes_of_mut(&mut values).copy_from_slice(bytes);
        let report = &outcome.report;
        let cut_off = || report.hops.iter().filter(|hop| hop.reason == Reason::Deadline);
        Ok(Received {
            bytes: report.bytes(),
            lost_bytes: report.lost_bytes(),
            late_bytes: cut_off().map(|hop| hop.bytes - hop.reached_bytes).sum(),
            cut_off: cut_off().count(),
            budget: outcome.budget,
            missing: missing(report, values.len(), self.ranks),
            values,
        })
    }
}

fn missing(report: &Report, elements: usize, ranks: usize) -> f64 {
    let known = report.missing.iter().map(|(range, of)| range.len() * of.len()).sum::<usize>();
    let unknown = report.uncertain.iter().map(|range| range.len() * ranks).sum::<usize>();
    (known + unknown) as f64 / (elements * ranks).max(1) as f64
}
