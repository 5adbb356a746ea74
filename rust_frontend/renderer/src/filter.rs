//! JSON lines in, JSON lines out: as many at a time as there are threads, in the order in which they came.

use std::io::{self, BufRead, BufWriter, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;

use octavo_api::ApiError;
use octavo_edge::{Settings, defect, error_json, unix_seconds};
use octavo_render_http::{Asked, TextService};
use uuid::Uuid;

use crate::line::{self, Line};

/// Lines that are read ahead, for each thread.
const AHEAD: usize = 2;

/// A line, and where its answer goes.
type Job = (Line, Sender<Vec<u8>>);

/// Answers all lines of `input`. Ends early, without an error, when nobody reads `output` any more.
///
/// # Errors
/// Input that cannot be read, output that cannot be written.
pub(crate) fn run(
    service: &TextService,
    threads: usize,
    mut input: impl BufRead,
    output: impl Write + Send,
) -> io::Result<()> {
    let limit = Settings::default().max_body_bytes;
    let (jobs, queue) = sync_channel::<Job>(threads * AHEAD);
    let (order, answers) = sync_channel::<Receiver<Vec<u8>>>(threads * AHEAD);
    let queue = Mutex::new(queue);
    let written = thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| work(service, limit, &queue));
        }
        let writer = scope.spawn(move || write(output, &answers));
        let read = read(&mut input, limit, &jobs, &order);
        drop((jobs, order));
        let written = writer
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        read.and(written)
    });
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// Hands out lines until the input or the writer ends.
fn read(
    input: &mut impl BufRead,
    limit: usize,
    jobs: &SyncSender<Job>,
    order: &SyncSender<Receiver<Vec<u8>>>,
) -> io::Result<()> {
    while let Some(line) = line::next(input, limit)? {
        let (answer, place) = channel();
        if order.send(place).is_err() || jobs.send((line, answer)).is_err() {
            return Ok(());
        }
    }
    Ok(())
}

fn work(service: &TextService, limit: usize, queue: &Mutex<Receiver<Job>>) {
    loop {
        // The lock is held while waiting: whoever gets the next line lets the next one wait.
        let job = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((line, answer)) = job else { return };
        // Nobody takes it where the writer has ended.
        let _ = answer.send(respond(service, limit, &line));
    }
}

fn respond(service: &TextService, limit: usize, line: &Line) -> Vec<u8> {
    let result = match line {
        Line::TooLong => Err(ApiError::too_large(limit)),
        Line::Whole(line) => {
            let asked = Asked {
                id: Uuid::new_v4().simple().to_string(),
                now: unix_seconds(),
            };
            catch_unwind(AssertUnwindSafe(|| service.answer_line(line, &asked)))
                .unwrap_or_else(|_| Err(defect()))
        }
    };
    result.unwrap_or_else(|error| error_json(&error))
}

fn write(output: impl Write, answers: &Receiver<Receiver<Vec<u8>>>) -> io::Result<()> {
    let mut output = BufWriter::new(output);
    loop {
        // What is done goes out before anyone waits for more.
        let place = match answers.try_recv() {
            Ok(place) => place,
            Err(_) => {
                output.flush()?;
                match answers.recv() {
                    Ok(place) => place,
                    Err(_) => return Ok(()),
                }
            }
        };
        let Ok(mut answer) = place.recv() else {
            return Ok(());
        };
        answer.push(b'\n');
        output.write_all(&answer)?;
    }
}
