//! Peers of datagram queue pairs, groups, and names of regions.

use super::lacuna_datagram;
use crate::endpoint::address::lacuna_address;
use crate::outcome::{self, Failure, code};
use crate::pointer::{self, Out};
use lacuna::datagram::PeerId;
use std::ffi::c_int;
use std::net::{IpAddr, SocketAddr};

/// The address of a peer, with a port.
///
/// # Safety
/// If not NULL, `address` points to its struct.
unsafe fn peer_address(address: *const lacuna_address) -> Result<SocketAddr, Failure> {
    // SAFETY: the caller's promise.
    let address = unsafe { lacuna_address::given(address, "address") }?;
    if address.port() == 0 || address.ip().is_unspecified() {
        return Err(Failure::usage(format!("address {address}: must be a host's, with a port")));
    }
    Ok(address)
}

/// Gives a handle out.
///
/// # Safety
/// As for [`lacuna_datagram_peer`].
unsafe fn held(
    datagram: *mut lacuna_datagram,
    address: *const lacuna_address,
    peer: *mut u64,
    of: impl FnOnce(&lacuna_datagram, SocketAddr) -> Option<PeerId>,
) -> Result<(), Failure> {
    // SAFETY: the caller's promise.
    let datagram = unsafe { pointer::object(datagram, "datagram") }?;
    // SAFETY: the caller's promise.
    let address = unsafe { peer_address(address) }?;
    // SAFETY: the caller's promise.
    let out = unsafe { Out::new(peer, "peer") }?;
    // Without a text: a program may wait for it often.
    out.set(of(datagram, address).ok_or(Failure::retry())?.number());
    Ok(())
}

/// The peer with this address: an address handle, a number that the calls of this queue
/// pair take. Equal addresses are one handle, and it stays until
/// lacuna_datagram_forget(). LACUNA_RETRY if as many are held as peers_max of the settings
/// has. May be called from any thread.
///
/// # Safety
/// datagram was not freed; address points to its struct; peer points to a uint64_t.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_datagram_peer(
    datagram: *mut lacuna_datagram,
    address: *const lacuna_address,
    peer: *mut u64,
) -> c_int {
    // SAFETY: the caller's promise.
    code(|| unsafe {
        held(datagram, address, peer, |datagram, address| datagram.queue_pair.peer(address))
    })
}

/// Several hosts as one peer: a multicast group, or a broadcast address. What
/// lacuna_datagram_send() and lacuna_datagram_write_named() post to it goes to all, once;
/// those that miss something ask for it again for a second. A reliable queue pair has no
/// groups. The rest as lacuna_datagram_peer().
///
/// # Safety
/// As for lacuna_datagram_peer().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_datagram_group(
    datagram: *mut lacuna_datagram,
    address: *const lacuna_address,
    peer: *mut u64,
) -> c_int {
    // SAFETY: the caller's promise.
    code(|| unsafe {
        held(datagram, address, peer, |datagram, address| datagram.queue_pair.group(address))
    })
}

/// Gives a handle back: the peer may go once others need its place. May be called from any
/// thread.
///
/// # Safety
/// datagram was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_datagram_forget(
    datagram: *mut lacuna_datagram,
    peer: u64,
) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let datagram = unsafe { pointer::object(datagram, "datagram") }?;
        datagram.known(peer)?;
        datagram.queue_pair.forget(PeerId::of_number(peer));
        Ok(())
    })
}

/// The address of a peer. LACUNA_USAGE if it is not known, or not any more. May be called
/// from any thread.
///
/// # Safety
/// datagram was not freed; address points to its struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_datagram_address(
    datagram: *mut lacuna_datagram,
    peer: u64,
    address: *mut lacuna_address,
) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let datagram = unsafe { pointer::object(datagram, "datagram") }?;
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(address, "address") }?;
        out.set(lacuna_address::of(datagram.known(peer)?));
        Ok(())
    })
}

/// Ends the error of a peer, so that messages can be posted to it again. Only peers of
/// reliable queue pairs are ever in error: they were silent for silence_ms of the settings,
/// or have begun anew and lost what they knew. May be called from any thread.
///
/// # Safety
/// datagram was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_datagram_reset(datagram: *mut lacuna_datagram, peer: u64) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let datagram = unsafe { pointer::object(datagram, "datagram") }?;
        datagram.known(peer)?;
        datagram.queue_pair.reset(PeerId::of_number(peer));
        Ok(())
    })
}

/// Tells a peer, or a group, up to where has been sent, once that has left: it knows then
/// which messages were lost last. Of those before, later ones tell it. May be called from
/// any thread.
///
/// # Safety
/// datagram was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_datagram_say_sent(
    datagram: *mut lacuna_datagram,
    peer: u64,
) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let datagram = unsafe { pointer::object(datagram, "datagram") }?;
        datagram.known(peer)?;
        datagram.queue_pair.say_sent(PeerId::of_number(peer));
        Ok(())
    })
}

/// Has what is sent to a multicast group, and to this queue pair's port, come here, on an
/// interface by its number: 0 is that of the address's scope, or of the route. The port of
/// group does not count. LACUNA_USAGE if the address is no group's, LACUNA_SYSTEM if the
/// system refuses: it is joined already, or there is no such interface. May be called from
/// any thread.
///
/// # Safety
/// datagram was not freed; group points to its struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_datagram_join(
    datagram: *mut lacuna_datagram,
    group: *const lacuna_address,
    interface: u32,
) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let datagram = unsafe { pointer::object(datagram, "datagram") }?;
        // SAFETY: the caller's promise.
        let (group, interface) = unsafe { multicast(group, interface) }?;
        let joined = datagram.queue_pair.join(group, interface);
        joined.map_err(|error| system(format!("cannot join {group}: {error}")))
    })
}

/// Leaves a group that lacuna_datagram_join() has joined, with the same arguments. May be
/// called from any thread.
///
/// # Safety
/// As for lacuna_datagram_join().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_datagram_leave(
    datagram: *mut lacuna_datagram,
    group: *const lacuna_address,
    interface: u32,
) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let datagram = unsafe { pointer::object(datagram, "datagram") }?;
        // SAFETY: the caller's promise.
        let (group, interface) = unsafe { multicast(group, interface) }?;
        let left = datagram.queue_pair.leave(group, interface);
        left.map_err(|error| system(format!("cannot leave {group}: {error}")))
    })
}

fn system(text: String) -> Failure {
    Failure::new(outcome::SYSTEM, text)
}

/// A group, and the interface that it is meant on.
///
/// # Safety
/// If not NULL, `group` points to its struct.
unsafe fn multicast(
    group: *const lacuna_address,
    interface: u32,
) -> Result<(IpAddr, u32), Failure> {
    // SAFETY: the caller's promise.
    let address = unsafe { lacuna_address::given(group, "group") }?;
    if !address.ip().is_multicast() {
        return Err(Failure::usage(format!("{} is no multicast group", address.ip())));
    }
    let scope = match address {
        SocketAddr::V4(_) => 0,
        SocketAddr::V6(v6) => v6.scope_id(),
    };
    Ok((address.ip(), if interface == 0 { scope } else { interface }))
}

/// Gives a region, or a window of one, a name by its key, under which
/// lacuna_datagram_write_named() of peers finds it; a key that is NULL takes the name back.
/// May be called from any thread.
///
/// # Safety
/// datagram was not freed; key is NULL or points to a uint32_t.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_datagram_name_region(
    datagram: *mut lacuna_datagram,
    name: u32,
    key: *const u32,
) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let datagram = unsafe { pointer::object(datagram, "datagram") }?;
        let key = match key.is_null() {
            true => None,
            // SAFETY: the caller's promise.
            false => Some(*unsafe { pointer::shared(key, "key") }?),
        };
        datagram.queue_pair.name_region(name, key);
        Ok(())
    })
}

impl lacuna_datagram {
    /// The address of a peer.
    fn known(&self, peer: u64) -> Result<SocketAddr, Failure> {
        self.queue_pair.address(PeerId::of_number(peer)).ok_or_else(|| {
            Failure::usage(format!(
                "no such peer {peer:#x}: its handle is of another queue pair, or was given back"
            ))
        })
    }
}
