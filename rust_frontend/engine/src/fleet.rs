//! Several engine cores behind one frontend: which of them gets a request.
//!
//! Each core has a client of its own, which replays its requests when it dies: a dead core's streams go on at its return,
//! and what comes meanwhile goes to the others.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use octavo_wire::frontend::{EngineInfo, Stats};
use parking_lot::{Mutex, MutexGuard};

use crate::affinity::{Key, Prefixes, keys, weight_version};
use crate::broadcast::{self, Answer};
use crate::client::overloaded;
use crate::generate::RankView;
use crate::sessions::Sessions;
use crate::{ControlFuture, EngineClient, Generate, GenerateError, StepStream, Submission};

/// A running request slows a core down as much as so many tokens of prompt before it: a guess that only has to be right
/// in its order.
const RUNNING_COST: u64 = 32;
/// A core may have one request in so many more than the one that has fewest, and one beside: prefixes are followed only
/// as far as that.
const SLACK: usize = 10;

/// Engine cores of the same model, by data-parallel rank.
#[derive(Debug)]
pub struct Fleet {
    members: Vec<Member>,
    max_open_requests: usize,
    /// Held while a request finds its core.
    routing: Mutex<Sessions>,
    /// Where the search for the least loaded begins, so that equal ones take turns.
    turn: AtomicUsize,
    /// The version of the weights that the last update gave; `None`: no update was seen.
    version: Arc<Mutex<Option<String>>>,
}

#[derive(Debug)]
struct Member {
    client: Arc<EngineClient>,
    known: Mutex<Known>,
}

/// What a core's cache may hold.
#[derive(Debug)]
struct Known {
    prefixes: Prefixes,
    /// How often the core had been restarted that they are of.
    of: Option<u64>,
}

/// What a request would cost one member.
struct Offer {
    rank: usize,
    /// Tokens of its prompt that must be computed there.
    uncached: u64,
    cost: u64,
}

impl Fleet {
    /// Takes at least one client, in the order of the ranks; all of them together hold so many requests at most.
    #[must_use]
    pub fn new(clients: Vec<Arc<EngineClient>>, max_open_requests: usize) -> Self {
        let members = clients.into_iter().map(|client| Member {
            client,
            known: Mutex::new(Known {
                prefixes: Prefixes::new(1),
                of: None,
            }),
        });
        Self {
            members: members.collect(),
            max_open_requests,
            routing: Mutex::default(),
            turn: AtomicUsize::new(0),
            version: Arc::default(),
        }
    }

    /// Shuts all clients down at the same time.
    pub async fn shutdown(&self, grace: Duration) {
        let clients = self.members.iter().map(|member| {
            let client = Arc::clone(&member.client);
            tokio::spawn(async move { client.shutdown(grace).await })
        });
        for task in clients.collect::<Vec<_>>() {
            // A client that panicked has nothing left to shut down.
            let _ = task.await;
        }
    }

    /// Returns the rank for a request, and how many tokens of its prompt are not in the cache there. `home` served the
    /// session last that it belongs to.
    fn choose(
        &self,
        request: &Submission,
        keys: &[Key],
        home: Option<usize>,
    ) -> Result<(usize, u64), GenerateError> {
        let length = request.prompt.len() as u64;
        if let Some(rank) = request.rank {
            return self.named(rank).map(|rank| (rank, length));
        }
        if let Some(rank) = home.filter(|rank| self.begins_at_once(*rank)) {
            let cached = self.members[rank].cached(keys);
            return Ok((rank, length.saturating_sub(cached)));
        }
        let offers = self.offers(length, keys, |client| client.ready());
        let offers = if offers.is_empty() {
            // One that comes back soon is as good as any.
            self.offers(length, keys, EngineClient::may_return)
        } else {
            offers
        };
        let dear = |offer: &Offer| (Some(offer.rank) != home, offer.cost);
        match offers.into_iter().min_by_key(dear) {
            Some(best) => Ok((best.rank, best.uncached)),
            None => self.nobody().map(|rank| (rank, length)),
        }
    }

    /// Whether a core serves now and has a place for one more request among those that it runs together.
    fn begins_at_once(&self, rank: usize) -> bool {
        let client = &self.members[rank].client;
        let version = self.version.lock().clone();
        let places = client.info().map_or(0, |info| info.max_num_seqs);
        let free = (client.open_requests() as u64) < places;
        free && client.ready() && self.members[rank].has(version.as_deref())
    }

    /// What becomes of a request that no core may serve: the first one says why, unless it could.
    fn nobody(&self) -> Result<usize, GenerateError> {
        let version = self.version.lock().clone();
        match version.filter(|_| self.alive() && self.info().is_some()) {
            Some(version) => Err(stale(&version)),
            None => Ok(0),
        }
    }

    fn named(&self, rank: u32) -> Result<usize, GenerateError> {
        let index = usize::try_from(rank).unwrap_or(usize::MAX);
        if let Some(member) = self.members.get(index) {
            let version = self.version.lock().clone();
            return match version {
                Some(version) if !member.has(Some(&version)) => Err(stale(&version)),
                _ => Ok(index),
            };
        }
        let message = match self.members.len() {
            1 => format!("'data_parallel_rank' is {rank}: the only one is 0"),
            many => format!(
                "'data_parallel_rank' is {rank}: there are 0 to {}",
                many - 1
            ),
        };
        Err(GenerateError::Rejected {
            code: "invalid".to_owned(),
            message,
            param: Some("data_parallel_rank".to_owned()),
        })
    }

    /// What the members that `may` take a request and are not ahead of others would cost, in an order that moves on by one
    /// each time.
    fn offers(&self, length: u64, keys: &[Key], may: impl Fn(&EngineClient) -> bool) -> Vec<Offer> {
        let count = self.members.len();
        let first = self.turn.fetch_add(1, Ordering::Relaxed);
        let version = self.version.lock().clone();
        let mut able: Vec<(usize, usize)> = (0..count)
            .map(|step| first.wrapping_add(step) % count)
            .filter(|rank| {
                let member = &self.members[*rank];
                may(&member.client) && member.has(version.as_deref())
            })
            .map(|rank| (rank, self.members[rank].client.open_requests()))
            .collect();
        let fewest = able.iter().map(|(_, open)| *open).min().unwrap_or(0);
        able.retain(|(_, open)| *open <= fewest + fewest / SLACK + 1);
        let offer = |(rank, open)| {
            let member: &Member = &self.members[rank];
            let uncached = length.saturating_sub(member.cached(keys));
            let before = member.client.backlog() + open as u64 * RUNNING_COST;
            Offer {
                rank,
                uncached,
                cost: uncached.saturating_add(before),
            }
        };
        able.into_iter().map(offer).collect()
    }

    /// The keys of a prompt's blocks, as those compute them that would serve it.
    fn keys(&self, request: &Submission) -> Vec<Key> {
        let version = self.version.lock().clone();
        let serving = |member: &&Member| member.has(version.as_deref());
        let info = self
            .members
            .iter()
            .find(serving)
            .and_then(|member| member.client.info());
        match info.filter(|info| info.prefix_caching) {
            Some(info) => keys(&info, &request.prompt, request.domain.as_ref()),
            None => Vec::new(),
        }
    }

    /// What all members say of themselves, as far as it is known.
    fn infos(&self) -> Vec<Arc<EngineInfo>> {
        let infos = self.members.iter().map(|member| member.client.info());
        infos.flatten().collect()
    }
}

impl Member {
    /// Whether its weights are those of the last update.
    fn has(&self, version: Option<&str>) -> bool {
        let Some(version) = version else { return true };
        let info = self.client.info();
        info.is_some_and(|info| weight_version(&info) == version)
    }

    /// How many tokens its cache may hold of a prompt with these keys.
    fn cached(&self, keys: &[Key]) -> u64 {
        let block = self.client.info().map_or(0, |info| info.block_tokens);
        self.known().prefixes.matched(keys) as u64 * block
    }

    /// What its cache may hold; a new process begins with nothing.
    fn known(&self) -> MutexGuard<'_, Known> {
        let restarts = self.client.engine_restarts();
        let mut known = self.known.lock();
        if known.of != Some(restarts)
            && let Some(info) = self.client.info()
        {
            let blocks = usize::try_from(info.num_blocks).unwrap_or(usize::MAX);
            *known = Known {
                prefixes: Prefixes::new(blocks),
                of: Some(restarts),
            };
        }
        known
    }
}

fn stale(version: &str) -> GenerateError {
    GenerateError::Unavailable {
        message: format!(
            "no engine core that may serve this has the weights of version {version} yet; finish the update on all ranks"
        ),
        retry_after_s: 1,
    }
}

impl Generate for Fleet {
    fn submit(&self, request: Submission) -> Result<StepStream, GenerateError> {
        let open = |member: &Member| member.client.open_requests();
        if self.members.iter().map(open).sum::<usize>() >= self.max_open_requests {
            return Err(overloaded(self.max_open_requests));
        }
        if let [only] = self.members.as_slice()
            && request.rank.is_none_or(|rank| rank == 0)
        {
            return only.client.submit(request);
        }
        let keys = self.keys(&request);
        // One at a time: what a request adds counts for the next one.
        let mut sessions = self.routing.lock();
        let session = request.session.clone();
        let home = session.as_deref().and_then(|name| sessions.home(name));
        let (rank, uncached) = self.choose(&request, &keys, home)?;
        let member = &self.members[rank];
        let stream = member.client.send(request, uncached)?;
        if let Some(name) = session {
            sessions.settle(&name, rank);
        }
        member.known().prefixes.add(&keys);
        Ok(stream)
    }

    fn info(&self) -> Option<Arc<EngineInfo>> {
        broadcast::infos(&self.infos())
    }

    fn ready(&self) -> bool {
        self.members.iter().any(|member| member.client.ready())
    }

    fn alive(&self) -> bool {
        self.members.iter().any(|member| member.client.alive())
    }

    fn stats(&self) -> Option<Stats> {
        let stats = self.members.iter().map(|member| member.client.stats());
        broadcast::stats(stats.flatten())
    }

    fn restarts(&self) -> u64 {
        let restarts = |member: &Member| member.client.engine_restarts();
        self.members.iter().map(restarts).sum()
    }

    fn ranks(&self) -> Vec<RankView> {
        let view = |member: &Member| {
            let stats = member.client.stats();
            RankView {
                ready: member.client.ready(),
                alive: member.client.alive(),
                restarts: member.client.engine_restarts(),
                open: member.client.open_requests(),
                running: stats.as_ref().map_or(0, |stats| stats.running),
                waiting: stats.as_ref().map_or(0, |stats| stats.waiting),
            }
        };
        self.members.iter().map(view).collect()
    }

    fn control(&self, op: &str, args: BTreeMap<String, String>) -> ControlFuture {
        let ask = |member: &Member| member.client.control(op, args.clone());
        let mut asked: Vec<ControlFuture> = self.members.iter().map(ask).collect();
        if asked.len() == 1
            && let Some(only) = asked.pop()
        {
            return only;
        }
        if op == "reset_prefix_cache" {
            for member in &self.members {
                member.known().prefixes.clear();
            }
        }
        let updates = op == "finish_weight_update" || op == "update_weight_version";
        let (op, version) = (op.to_owned(), Arc::clone(&self.version));
        Box::pin(async move {
            let mut answers: Vec<Answer> = Vec::new();
            // All were asked above, at the same time: here is only waiting.
            for answer in asked {
                answers.push(answer.await);
            }
            if updates {
                // Where some did it and some did not, only the former serve.
                if let Some(new) = answers.iter().flatten().find_map(broadcast::version) {
                    *version.lock() = Some(new);
                }
            }
            broadcast::merge(&op, &args, answers)
        })
    }
}
