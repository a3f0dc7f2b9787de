//! A completion queue under tokio: a task waits for messages by the queue's file descriptor, and no thread
//! sleeps for it. The context makes progress by its own threads.
//!
//! ```text
//! cargo run -p lacuna --example tokio_completions
//! ```

#[cfg(unix)]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    unix::main()
}

#[cfg(not(unix))]
fn main() {
    eprintln!("completion queues have a file descriptor on Unix systems only");
}

#[cfg(unix)]
mod unix {
    use lacuna::{
        Arm, Completion, CompletionQueue, Connection, ConnectionConfig, Context, ContextConfig,
        Listener, Outcome, PollError, RecvOptions,
    };
    use std::error::Error;
    use std::io;
    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;

    const ENTRIES: u32 = 256;
    const MESSAGES: u32 = 10_000;
    /// Completions per poll.
    const BATCH: usize = 64;

    /// A completion queue that one task waits for.
    struct AsyncQueue(AsyncFd<CompletionQueue>);

    impl AsyncQueue {
        /// To be called inside of a runtime.
        fn new(queue: CompletionQueue) -> io::Result<Self> {
            // SAFETY: a queue keeps its one descriptor open until it is dropped.
            let registered = unsafe { AsyncFd::register_with_interest(queue, Interest::READABLE) };
            Ok(Self(registered?))
        }

        /// Waits until there are completions, and moves up to [`BATCH`] of them to the end of `into`.
        /// `false` when the context is gone and all were taken.
        async fn next(&self, into: &mut Vec<Completion>) -> Result<bool, Box<dyn Error>> {
            let queue = self.0.get_ref();
            loop {
                // A busy queue is polled without a system call.
                if let Some(outcome) = poll(queue, into)? {
                    return Ok(outcome);
                }
                // What came before the arming makes no event, so the queue is polled once more.
                queue.arm(Arm::Any)?;
                if let Some(outcome) = poll(queue, into)? {
                    return Ok(outcome);
                }
                // The runtime remembers that the descriptor was readable; the next arming makes the
                // descriptor itself unreadable.
                self.0.readable().await?.clear_ready();
            }
        }
    }

    /// Whether there were completions, or `Some(false)` if none will come; `None`: wait.
    fn poll(
        queue: &CompletionQueue,
        into: &mut Vec<Completion>,
    ) -> Result<Option<bool>, PollError> {
        match queue.try_poll(into, BATCH) {
            Ok(0) => Ok(None),
            Ok(_) => Ok(Some(true)),
            Err(PollError::Closed) => Ok(Some(false)),
            Err(error) => Err(error),
        }
    }

    pub(super) fn main() -> Result<(), Box<dyn Error>> {
        let [here, there] = [(); 2].map(|()| Context::new(ContextConfig::default()));
        let (here, there) = (here?, there?);
        let listener = Listener::bind(&there, "[::1]:0".parse()?, ConnectionConfig::default())?;
        let address = listener.local_addr();
        let sender = std::thread::spawn(move || send(&here, &address.to_string()));
        let connection = listener.accept()?;
        let queue = there.completion_queue(ENTRIES)?;
        connection.complete_to(&queue)?;
        for number in 0..u64::from(ENTRIES) {
            connection.queue_recv(vec![0; 100], RecvOptions::default(), number)?;
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        let received = runtime.block_on(receive(queue, &connection))?;
        println!("{received} messages received");
        sender
            .join()
            .map_err(|_| "the sender's thread panicked")?
            .map_err(|error| error.to_string())?;
        Ok(())
    }

    /// Takes all messages and posts their buffers again.
    async fn receive(
        queue: CompletionQueue,
        connection: &Connection,
    ) -> Result<u32, Box<dyn Error>> {
        let queue = AsyncQueue::new(queue)?;
        let mut completions = Vec::with_capacity(BATCH);
        let mut received = 0;
        while received < MESSAGES && queue.next(&mut completions).await? {
            for completion in completions.drain(..) {
                let Outcome::Received(ended) = completion.outcome else { continue };
                let done = ended.take();
                received += u32::from(done.is_complete);
                let number = completion.user_data;
                connection.queue_recv(done.buffer, RecvOptions::default(), number)?;
            }
        }
        Ok(received)
    }

    /// The other end.
    fn send(context: &Context, address: &str) -> Result<(), Box<dyn Error + Send + Sync>> {
        let connection = Connection::connect(context, address, ConnectionConfig::default())?;
        for number in 0..MESSAGES {
            connection.send(&number.to_be_bytes())?;
        }
        Ok(())
    }
}
