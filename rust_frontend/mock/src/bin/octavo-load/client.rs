//! Connections that send requests, in a closed loop or at their times.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::figures::Figures;
use crate::response::Response;

/// What to do.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) address: String,
    pub(crate) connections: usize,
    /// Requests a second; `None`: a closed loop.
    pub(crate) rate: Option<f64>,
    /// Requests at most.
    pub(crate) count: u64,
    /// How long; `None`: until all are answered.
    pub(crate) window: Option<Duration>,
    /// Before the window.
    pub(crate) warmup: Duration,
    pub(crate) seed: u64,
}

/// A load, and what has been measured of it.
#[derive(Debug)]
pub(crate) struct Load {
    plan: Plan,
    requests: Vec<Vec<u8>>,
    sent: Cell<u64>,
    /// Open connections without a request.
    idle: RefCell<Vec<TcpStream>>,
    busy: Cell<usize>,
    began: Cell<Option<Instant>>,
    seconds: Cell<Duration>,
    figures: RefCell<Figures>,
}

/// One answer.
struct Answer {
    response: Response,
    first: Duration,
    total: Duration,
}

impl Load {
    pub(crate) fn new(plan: Plan, requests: Vec<Vec<u8>>) -> Self {
        Self {
            plan,
            requests,
            sent: Cell::new(0),
            idle: RefCell::default(),
            busy: Cell::new(0),
            began: Cell::new(None),
            seconds: Cell::default(),
            figures: RefCell::default(),
        }
    }

    pub(crate) fn report(&self) -> Value {
        self.figures.borrow_mut().report(self.seconds.get())
    }

    /// The next request's bytes; `None` after the last.
    fn next(&self) -> Option<&[u8]> {
        let number = self.sent.get();
        if number >= self.plan.count {
            return None;
        }
        self.sent.set(number + 1);
        let turn = usize::try_from(number % self.requests.len() as u64).unwrap_or(0);
        self.requests.get(turn).map(Vec::as_slice)
    }

    /// Whether what ends now counts.
    fn counts(&self) -> bool {
        self.began.get().is_some()
    }

    fn note(&self, result: Result<Answer, String>) {
        if !self.counts() {
            return;
        }
        let mut figures = self.figures.borrow_mut();
        match result {
            Ok(answer) if answer.response.status == 200 => {
                let Some(tokens) = answer.response.tokens() else {
                    figures.fail(format!("no usage in {:?}", answer.response.tail()));
                    return;
                };
                figures.requests += 1;
                figures.tokens += tokens;
                figures.events += answer.response.events();
                figures.bytes += answer.response.bytes;
                figures.first.push(answer.first);
                figures.total.push(answer.total);
            }
            Ok(answer) => {
                let (status, tail) = (answer.response.status, answer.response.tail());
                figures.fail(format!("status {status}: {tail}"));
            }
            Err(error) => figures.fail(error),
        }
    }
}

/// Runs a load to its end.
///
/// # Errors
/// Nobody listens.
pub(crate) async fn run(load: Rc<Load>) -> Result<(), String> {
    let address = &load.plan.address;
    TcpStream::connect(address)
        .await
        .map_err(|error| format!("cannot connect to {address}: {error}"))?;
    let start = Instant::now();
    let warm = start + load.plan.warmup;
    let all = async {
        match load.plan.rate {
            Some(rate) => open_loop(&load, rate).await,
            None => closed_loop(&load).await,
        }
    };
    let end = async {
        sleep_until(warm).await;
        load.began.set(Some(Instant::now()));
        match load.plan.window {
            Some(window) => sleep_until(warm + window).await,
            None => std::future::pending().await,
        }
    };
    if load.plan.warmup.is_zero() {
        load.began.set(Some(start));
    }
    tokio::select! {
        () = all => {}
        () = end => {}
    }
    let began = load.began.get().unwrap_or(start);
    load.seconds.set(began.elapsed());
    Ok(())
}

async fn closed_loop(load: &Rc<Load>) {
    let mut tasks = JoinSet::new();
    for _ in 0..load.plan.connections {
        let load = Rc::clone(load);
        tasks.spawn_local(async move {
            let mut stream = None;
            while let Some(request) = load.next() {
                let result = exchange(&load.plan.address, &mut stream, request).await;
                if result.is_err() {
                    stream = None;
                    // A server that is down must not be asked a million times.
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                load.note(result);
            }
        });
    }
    while tasks.join_next().await.is_some() {}
}

async fn open_loop(load: &Rc<Load>, rate: f64) {
    let mut tasks = JoinSet::new();
    let mut due = Instant::now();
    let mut draws = load.plan.seed;
    while let Some(request) = load.next() {
        draws = draws.wrapping_add(1);
        due += Duration::from_secs_f64(-uniform(draws).ln() / rate);
        sleep_until(due).await;
        while tasks.try_join_next().is_some() {}
        if load.counts() {
            load.figures.borrow_mut().late.push(due.elapsed());
        }
        if load.busy.get() >= load.plan.connections {
            load.note(Err(format!(
                "all {} connections are busy",
                load.plan.connections
            )));
            continue;
        }
        load.busy.set(load.busy.get() + 1);
        let (load, request) = (Rc::clone(load), request.to_vec());
        tasks.spawn_local(async move {
            let mut stream = load.idle.borrow_mut().pop();
            let result = exchange(&load.plan.address, &mut stream, &request).await;
            if result.is_ok() {
                load.idle.borrow_mut().extend(stream);
            }
            load.busy.set(load.busy.get() - 1);
            load.note(result);
        });
    }
    while tasks.join_next().await.is_some() {}
}

/// Sends one request and reads its answer; connects first if there is no connection.
async fn exchange(
    address: &str,
    stream: &mut Option<TcpStream>,
    request: &[u8],
) -> Result<Answer, String> {
    let start = Instant::now();
    let text = |error: std::io::Error| error.to_string();
    let stream = match stream {
        Some(stream) => stream,
        none => {
            let new = TcpStream::connect(address).await.map_err(text)?;
            new.set_nodelay(true).map_err(text)?;
            none.insert(new)
        }
    };
    stream.write_all(request).await.map_err(text)?;
    let mut response = Response::default();
    let mut first = None;
    let mut buffer = [0; 16 << 10];
    while !response.is_done() {
        let count = stream.read(&mut buffer).await.map_err(text)?;
        if count == 0 {
            return Err("the connection ended within a response".to_owned());
        }
        first.get_or_insert_with(|| start.elapsed());
        response.feed(&buffer[..count])?;
    }
    Ok(Answer {
        response,
        first: first.unwrap_or_default(),
        total: start.elapsed(),
    })
}

/// A number above 0, up to 1, by `SplitMix64`.
fn uniform(draw: u64) -> f64 {
    let mut z = draw.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^= z >> 31;
    ((z >> 11) + 1) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uniform_numbers_are_uniform() {
        let draws: Vec<f64> = (1..10_001).map(uniform).collect();
        assert!(draws.iter().all(|draw| *draw > 0.0 && *draw <= 1.0));
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        assert!((mean - 0.5).abs() < 0.01, "{mean}");
        let gap = draws.iter().map(|draw| -draw.ln()).sum::<f64>() / draws.len() as f64;
        assert!((gap - 1.0).abs() < 0.03, "{gap}");
    }
}
