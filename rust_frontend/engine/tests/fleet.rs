//! A fleet of engine clients against scripted cores.

#![allow(clippy::unwrap_used, clippy::panic)]

mod scripted;

use std::collections::BTreeMap;
use std::sync::Arc;

use octavo_engine::{EngineClient, EngineConfig, Fleet, Generate, GenerateError, StepStream};
use octavo_transport::memory::{Network, network};
use octavo_wire::frontend::{
    AddRequest, ControlDone, Domain, EngineReady, FrontendMessage, ModelState,
};
use scripted::{Core, info, read_all, submission, until};

const WINDOW: u64 = 1 << 20;

struct Place {
    fleet: Arc<Fleet>,
    networks: Vec<Network>,
    cores: Vec<Core>,
}

async fn place(ranks: usize) -> Place {
    let (mut clients, mut networks, mut cores) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ranks {
        let (transport, network) = network();
        clients.push(EngineClient::start_over(
            transport,
            EngineConfig::new("memory"),
        ));
        cores.push(Core::ready(&network, 1, WINDOW).await);
        networks.push(network);
    }
    let fleet = Arc::new(Fleet::new(clients, 1024));
    until("all ready", || fleet.ranks().iter().all(|rank| rank.ready)).await;
    Place {
        fleet,
        networks,
        cores,
    }
}

impl Place {
    fn ask(&self, prompt: &[i32], salt: &str) -> (usize, StepStream) {
        let mut request = submission("a");
        request.prompt = prompt.to_vec();
        request.domain = (!salt.is_empty()).then(|| Domain {
            salt: salt.to_owned(),
            ..Domain::default()
        });
        let before: Vec<usize> = self.open();
        let stream = self.fleet.submit(request).unwrap();
        let after = self.open();
        let rank = (0..before.len()).find(|rank| after[*rank] > before[*rank]);
        (rank.unwrap(), stream)
    }

    fn open(&self) -> Vec<usize> {
        self.fleet.ranks().iter().map(|rank| rank.open).collect()
    }
}

/// Prompts of two blocks that begin differently.
fn prompt(number: usize) -> Vec<i32> {
    let number = i32::try_from(number).unwrap();
    (0..32).map(|index| number * 100 + index).collect()
}

impl Place {
    /// The rank that a request of a session got, which stays open.
    fn of_session(&self, session: &str, number: usize) -> (usize, StepStream) {
        let mut request = submission("a");
        request.prompt = prompt(number);
        request.session = Some(session.to_owned());
        let before = self.open();
        let stream = self.fleet.submit(request).unwrap();
        let after = self.open();
        let rank = (0..before.len()).find(|rank| after[*rank] > before[*rank]);
        (rank.unwrap(), stream)
    }
}

/// A session stays where it was while others have less to do, and until its core is full; then it lives where it went.
#[tokio::test(start_paused = true)]
async fn a_session_stays_while_its_core_has_a_place() {
    let place = place(2).await;
    let places = usize::try_from(info().max_num_seqs).unwrap();
    let (home, first) = place.of_session("one", 0);
    let mut streams = vec![first];
    for number in 1..places {
        let (rank, stream) = place.of_session("one", number);
        assert_eq!(rank, home, "{number}");
        streams.push(stream);
    }
    let (other, stream) = place.of_session("one", places);
    assert_ne!(other, home, "its core is full");
    streams.push(stream);
    // Others are shared out by what waits, as if there were no sessions.
    let (rank, stream) = place.of_session("two", 1);
    assert_eq!(rank, other);
    streams.push(stream);
    streams.truncate(places / 2);
    until("places are free", || place.open()[other] == 0).await;
    assert!(place.open()[home] > 0);
    let (rank, _stream) = place.of_session("one", 1);
    assert_eq!(rank, other, "it lives there now");
}

/// A session before a prefix; and no session on a core that is away.
#[tokio::test(start_paused = true)]
async fn a_session_goes_before_a_prefix_and_leaves_a_dead_core() {
    let mut place = place(2).await;
    let (home, mut stream) = place.of_session("one", 1);
    answer(&mut place.cores[home]).await;
    read_all(&mut stream).await.unwrap();
    let mut request = submission("a");
    request.prompt = prompt(2);
    request.rank = u32::try_from(1 - home).ok();
    let mut stream = place.fleet.submit(request).unwrap();
    answer(&mut place.cores[1 - home]).await;
    read_all(&mut stream).await.unwrap();
    until("nothing is open", || place.open() == [0, 0]).await;
    // The prefix of prompt 2 is on the other core.
    let (rank, mut stream) = place.of_session("one", 2);
    assert_eq!(rank, home);
    answer(&mut place.cores[home]).await;
    read_all(&mut stream).await.unwrap();
    drop(place.cores.remove(home));
    until("one is away", || !place.fleet.ranks()[home].ready).await;
    let (rank, _stream) = place.of_session("one", 3);
    assert_eq!(rank, 1 - home);
}

async fn answer(core: &mut Core) -> AddRequest {
    let request = core.request().await;
    core.deliver(&request, 0, &[5], Some("stop")).await;
    request
}

/// DP01: a burst right after the start is shared out evenly, whether its prompts are equal or not.
#[tokio::test(start_paused = true)]
async fn dp01_a_first_burst_is_shared_out() {
    for equal in [true, false] {
        let place = place(4).await;
        let mut streams = Vec::new();
        for number in 0..40 {
            streams.push(place.ask(&prompt(if equal { 0 } else { number }), ""));
        }
        let open = place.open();
        assert!(
            open.iter().all(|count| (9..=11).contains(count)),
            "{open:?}"
        );
    }
}

/// DP02: what is under way counts at once, whatever statistics say; long and short requests in any order.
#[tokio::test(start_paused = true)]
async fn dp02_no_rank_gets_ahead_by_more_than_a_tenth_and_two() {
    let mut place = place(4).await;
    let mut streams: Vec<Vec<StepStream>> = (0..4).map(|_| Vec::new()).collect();
    for number in 0..400 {
        let mut long = prompt(number);
        long.resize(if number % 7 == 0 { 100 } else { 32 }, 1);
        let (rank, stream) = place.ask(&long, "");
        streams[rank].push(stream);
        // Short ones end meanwhile: of every three that came, one of the fullest rank.
        if number % 3 == 0 {
            let open = place.open();
            let fullest = (0..4).max_by_key(|rank| open[*rank]).unwrap();
            drop(streams[fullest].pop());
            let left = open[fullest] - 1;
            until("the place is free", || place.open()[fullest] == left).await;
        }
        let open = place.open();
        let (most, least) = (open.iter().max().unwrap(), open.iter().min().unwrap());
        assert!(most - least <= most / 10 + 2, "{open:?}");
    }
    drop(place.cores.pop());
}

/// DP04: a prefix is followed to where it is, but not by another tenant.
#[tokio::test(start_paused = true)]
async fn dp04_prefixes_are_followed_within_a_domain() {
    let mut place = place(3).await;
    let (home, mut stream) = place.ask(&prompt(1), "one");
    answer(&mut place.cores[home]).await;
    read_all(&mut stream).await.unwrap();
    until("nothing is open", || place.open() == [0, 0, 0]).await;
    let mut longer = prompt(1);
    longer.extend([7; 20]);
    for _ in 0..5 {
        let (rank, mut stream) = place.ask(&longer, "one");
        assert_eq!(rank, home);
        answer(&mut place.cores[rank]).await;
        read_all(&mut stream).await.unwrap();
        until("nothing is open", || place.open() == [0, 0, 0]).await;
    }
    let mut seen = BTreeMap::new();
    let mut streams = Vec::new();
    for _ in 0..3 {
        let (rank, stream) = place.ask(&prompt(1), "two");
        *seen.entry(rank).or_insert(0) += 1;
        streams.push(stream);
    }
    assert_eq!(seen.len(), 3, "a miss goes where least waits: {seen:?}");
}

#[tokio::test(start_paused = true)]
async fn a_named_rank_serves_and_an_unknown_one_is_refused_by_number() {
    let place = place(2).await;
    let mut request = submission("a");
    request.rank = Some(1);
    let streams: Vec<StepStream> = (0..5)
        .map(|_| place.fleet.submit(request.clone()).unwrap())
        .collect();
    assert_eq!(place.open(), [0, 5]);
    request.rank = Some(2);
    let Err(GenerateError::Rejected { message, .. }) = place.fleet.submit(request) else {
        panic!("rank 2 is refused");
    };
    assert_eq!(message, "'data_parallel_rank' is 2: there are 0 to 1");
    drop(streams);
}

#[tokio::test(start_paused = true)]
async fn a_dead_cores_streams_go_on_at_its_return_and_new_ones_go_to_the_others() {
    let mut place = place(2).await;
    let (home, mut stream) = place.ask(&prompt(1), "");
    let request = place.cores[home].request().await;
    place.cores[home].deliver(&request, 0, &[1, 2], None).await;
    let gone = place.cores.remove(home);
    drop(gone);
    until("one is away", || !place.fleet.ranks()[home].ready).await;
    assert!(place.fleet.ready());
    let others: Vec<_> = (0..4).map(|_| place.ask(&prompt(1), "")).collect();
    assert!(others.iter().all(|(rank, _)| *rank != home));
    let mut back = Core::ready(&place.networks[home], 2, WINDOW).await;
    let again = back.request().await;
    assert_eq!(again.emitted.as_slice(), [1, 2]);
    back.deliver(&again, 2, &[3], Some("stop")).await;
    assert_eq!(
        read_all(&mut stream).await,
        Ok((vec![1, 2, 3], "stop".to_owned()))
    );
    assert_eq!(place.fleet.restarts(), 1);
}

async fn done(core: &mut Core, error: Option<&str>, result: &[(&str, &str)]) {
    let FrontendMessage::Control(control) = core.next().await else {
        panic!("an operation was expected");
    };
    let result = result
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    core.send(ControlDone {
        id: control.id,
        error: error.map(str::to_owned),
        result: result.collect(),
        code: error.map_or("", |_| "failed").to_owned(),
        param: None,
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn operations_reach_all_and_their_answers_become_one() {
    let mut place = place(2).await;
    let asked = place.fleet.control("abort_requests", BTreeMap::new());
    done(&mut place.cores[0], None, &[("aborted", "2")]).await;
    done(&mut place.cores[1], None, &[("aborted", "3")]).await;
    assert_eq!(asked.await.unwrap()["aborted"], "5");
    let asked = place.fleet.control("is_paused", BTreeMap::new());
    done(&mut place.cores[0], None, &[("is_paused", "true")]).await;
    done(&mut place.cores[1], None, &[("is_paused", "false")]).await;
    assert_eq!(asked.await.unwrap()["is_paused"], "false");
    let asked = place.fleet.control("pause", BTreeMap::new());
    done(&mut place.cores[0], None, &[]).await;
    done(&mut place.cores[1], Some("no"), &[]).await;
    let Err(GenerateError::Failed { message }) = asked.await else {
        panic!("one failed");
    };
    assert_eq!(message, "rank 1: no");
}

#[tokio::test(start_paused = true)]
async fn after_an_update_only_cores_with_its_weights_serve() {
    let mut place = place(2).await;
    let asked = place.fleet.control("finish_weight_update", BTreeMap::new());
    done(&mut place.cores[0], None, &[("weight_version", "7")]).await;
    done(&mut place.cores[1], Some("out of memory"), &[]).await;
    assert!(asked.await.is_err());
    let refused = place.fleet.submit(submission("a"));
    assert!(matches!(refused, Err(GenerateError::Unavailable { .. })));
    let state = ModelState {
        weight_version: "7".to_owned(),
        state: "running".to_owned(),
        note: String::new(),
    };
    let info = octavo_wire::frontend::EngineInfo {
        model_state: Some(state),
        ..info()
    };
    place.cores[0].send(EngineReady { info }).await;
    let may = || place.fleet.submit(submission("a")).is_ok();
    until("one has them", may).await;
    let streams: Vec<_> = (0..4).map(|_| place.ask(&prompt(1), "")).collect();
    assert!(streams.iter().all(|(rank, _)| *rank == 0));
}
