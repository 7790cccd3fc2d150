//! Ctrl-C: the first one asks for what is known so far, the second one kills.
//!
//! Work runs on a thread of its own and is abandoned, not waited for: one tensor can take a minute. It ends with the process.

use std::{
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc::{RecvTimeoutError, channel},
    },
    thread,
    time::Duration,
};

static STOPPED: AtomicBool = AtomicBool::new(false);

/// How often the flag is looked at: at once, for a person.
const LOOK: Duration = Duration::from_millis(30);
/// What is nearly done may finish.
const GRACE: Duration = Duration::from_millis(100);

/// Whether Ctrl-C was pressed since [`listen`].
pub(crate) fn stopped() -> bool {
    STOPPED.load(Ordering::Relaxed)
}

/// From now on the first Ctrl-C is ours.
#[cfg(unix)]
pub(crate) fn listen() {
    extern "C" fn stop(_: libc::c_int) {
        STOPPED.store(true, Ordering::Relaxed);
    }
    // SAFETY: the handler only stores to an atomic, which is async-signal-safe; the action is fully initialised (zeroed is a valid
    // `sigaction`) and outlives the call. SA_RESETHAND gives the second Ctrl-C back to the system.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = stop as extern "C" fn(libc::c_int) as libc::sighandler_t;
        action.sa_flags = libc::SA_RESETHAND | libc::SA_RESTART;
        libc::sigemptyset(&raw mut action.sa_mask);
        libc::sigaction(libc::SIGINT, &raw const action, std::ptr::null_mut());
    }
}

#[cfg(not(unix))]
pub(crate) fn listen() {}

/// The work's answer, or `None` when Ctrl-C came first. `look` is called while it is waited for, `stop` once after Ctrl-C.
pub(crate) fn unless_stopped<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
    mut look: impl FnMut(),
    stop: impl FnOnce(),
) -> Option<T> {
    let (done, waiting) = channel();
    let worker = thread::spawn(move || {
        let _ = done.send(work());
    });
    loop {
        match waiting.recv_timeout(LOOK) {
            Ok(answer) => return Some(answer),
            Err(RecvTimeoutError::Disconnected) => {
                // It ended without an answer: its panic is ours.
                let panic = worker.join().err()?;
                std::panic::resume_unwind(panic);
            }
            Err(RecvTimeoutError::Timeout) if stopped() => {
                stop();
                return waiting.recv_timeout(GRACE).ok();
            }
            Err(RecvTimeoutError::Timeout) => look(),
        }
    }
}
