//! A forked child cannot use an inherited completion queue, and takes nothing from its parent's.
#![cfg(target_os = "linux")]

use lacuna::{
    Arm, CompletionQueueError, Context, ContextConfig, ContextError, PollError, Progress,
};
use std::net::{IpAddr, Ipv4Addr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// Runs `child` in a forked process that is killed if it hangs; returns whether it succeeded.
fn forked(child: impl FnOnce()) -> bool {
    // SAFETY: the child has this thread alone, and takes no lock that another may hold but the
    // memory allocator's, which the C library frees.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: ends the process later.
            unsafe { libc::alarm(120) };
            let is_right = catch_unwind(AssertUnwindSafe(child)).is_ok();
            // SAFETY: ends the process.
            unsafe { libc::_exit(i32::from(!is_right)) }
        }
        child => {
            let mut status = -1;
            // SAFETY: the status outlives the call.
            unsafe { libc::waitpid(child, &raw mut status, 0) };
            status == 0
        }
    }
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn a_child_drops_its_completion_queue_and_the_parent_goes_on() {
    for progress in [Progress::default(), Progress::Manual] {
        let bind = IpAddr::V4(Ipv4Addr::LOCALHOST).into();
        let before = descriptors();
        let context =
            Context::new(ContextConfig { bind, progress, ..ContextConfig::default() }).unwrap();
        let queue = context.completion_queue(8).unwrap();
        assert_eq!(queue.arm(Arm::Any), Ok(false));
        let mut inherited = Some((context, queue));
        assert!(forked(|| {
            let (context, queue) = inherited.take().unwrap();
            let mut found = Vec::new();
            assert_eq!(queue.try_poll(&mut found, 1), Err(PollError::Inherited));
            let polled = queue.poll(&mut found, 1, Duration::from_secs(60));
            assert_eq!(polled, Err(PollError::Inherited));
            assert_eq!(queue.arm(Arm::Any), Err(PollError::Inherited));
            assert_eq!((queue.len(), queue.reserved(), queue.capacity()), (0, 0, 8));
            let refused = context.completion_queue(8);
            let is_inherited =
                matches!(refused, Err(CompletionQueueError::Context(ContextError::Inherited)));
            assert!(is_inherited);
            drop((queue, context));
            assert_eq!(descriptors(), before);
        }));
        let (context, queue) = inherited.take().unwrap();
        assert_eq!(queue.arm(Arm::Any), Ok(false));
        drop(context);
        assert_eq!(queue.try_poll(&mut Vec::new(), 1), Err(PollError::Closed));
    }
}
