//! Cases SE01 and SE02: a canary counts connections that must not be made.

#![allow(clippy::unwrap_used)]

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use octavo_media::{AddressRange, Fetcher, HostRule, MediaError, MediaPolicy, Resolve, is_public};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

/// Counts connections.
struct Canary {
    port: u16,
    seen: Arc<AtomicUsize>,
}

impl Canary {
    /// Listens on 127.0.0.1 and, where there is IPv6, on ::1, on the same port.
    async fn start() -> Self {
        let first = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = first.local_addr().unwrap().port();
        let seen = Arc::new(AtomicUsize::new(0));
        let second = TcpListener::bind(("::1", port)).await.ok();
        for listener in [Some(first), second].into_iter().flatten() {
            let seen = Arc::clone(&seen);
            tokio::spawn(async move {
                while listener.accept().await.is_ok() {
                    seen.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        Self { port, seen }
    }

    fn connections(&self) -> usize {
        self.seen.load(Ordering::SeqCst)
    }
}

/// Answers from a table, and counts what is asked.
#[derive(Clone, Default)]
struct Names {
    table: Arc<HashMap<String, Vec<IpAddr>>>,
    asked: Arc<AtomicUsize>,
}

impl Names {
    fn new(rows: &[(&str, &[&str])]) -> Self {
        let parse = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        let table = rows
            .iter()
            .map(|(name, ips)| ((*name).to_owned(), parse(ips)));
        Self {
            table: Arc::new(table.collect()),
            asked: Arc::default(),
        }
    }
}

impl Resolve for Names {
    fn resolve<'a>(
        &'a self,
        host: &'a str,
    ) -> std::pin::Pin<Box<dyn Future<Output = std::io::Result<Vec<IpAddr>>> + Send + 'a>> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let found = self.table.get(host).cloned();
        Box::pin(async move { found.ok_or_else(|| std::io::ErrorKind::NotFound.into()) })
    }
}

/// The policies under which nothing internal may be reached: the default, and "any public host".
fn policies() -> [MediaPolicy; 2] {
    let open = MediaPolicy {
        any_public_host: true,
        ..MediaPolicy::default()
    };
    [MediaPolicy::default(), open]
}

fn check_text(error: &MediaError) {
    let text = error.to_string();
    for part in ["127.", "169.254", "10.0.0", "::1", "canary"] {
        assert!(!text.contains(part), "{text}");
    }
    assert_eq!(
        error.answer("messages.0.content.0.image_url.url").status(),
        400
    );
}

#[tokio::test]
async fn se01_internal_addresses_are_never_dialled() {
    let canary = Canary::start().await;
    let port = canary.port;
    let names = Names::new(&[
        ("canary.test", &["127.0.0.1"]),
        ("mixed.test", &["93.184.215.14", "127.0.0.1"]),
        ("mapped.test", &["::ffff:127.0.0.1"]),
        ("nat.test", &["64:ff9b::7f00:1"]),
    ]);
    let urls = [
        format!("http://127.0.0.1:{port}/x"),
        "http://169.254.169.254/latest/meta-data/".to_owned(),
        format!("http://[::1]:{port}/"),
        format!("http://0x7f000001:{port}/"),
        format!("http://2130706433:{port}/"),
        format!("http://0177.0.0.1:{port}/"),
        format!("http://127.1:{port}/"),
        format!("http://[::ffff:127.0.0.1]:{port}/"),
        "http://10.0.0.1/".to_owned(),
        format!("http://canary.test:{port}/"),
        "http://canary.test/".to_owned(),
        "http://CANARY.TEST./".to_owned(),
        "http://mixed.test/".to_owned(),
        "http://mapped.test/".to_owned(),
        "http://nat.test/".to_owned(),
        format!("http://localhost:{port}/"),
        "http://localhost/".to_owned(),
        "http://metadata.google.internal/".to_owned(),
        format!("ftp://127.0.0.1:{port}/"),
        format!("gopher://127.0.0.1:{port}/"),
        "file:///etc/passwd".to_owned(),
        format!("http:\\\\127.0.0.1:{port}\\x"),
        "http://".to_owned(),
        "//127.0.0.1/x".to_owned(),
    ];
    for policy in policies() {
        let fetcher = Fetcher::new(policy, names.clone()).unwrap();
        for url in &urls {
            check_text(&fetcher.fetch(url).await.expect_err(url));
        }
    }
    assert_eq!(canary.connections(), 0);
}

/// A host that is allowed, at 127.0.0.2: redirects wherever the path says, or gives bytes.
async fn good_host(table: HashMap<&'static str, String>) -> u16 {
    let listener = TcpListener::bind("127.0.0.2:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = vec![0; 4096];
            let count = stream.read(&mut head).await.unwrap_or(0);
            let head = String::from_utf8_lossy(&head[..count]).into_owned();
            let path = head.split(' ').nth(1).unwrap_or_default();
            let answer = match (path, table.get(path)) {
                (_, Some(place)) => {
                    format!("302 Found\r\nLocation: {place}\r\nContent-Length: 0\r\n\r\n")
                }
                ("/long", _) => "200 OK\r\nContent-Length: 99999999\r\n\r\n".to_owned(),
                ("/endless", _) => {
                    let chunk = format!("ff\r\n{}\r\n", "x".repeat(255));
                    format!("200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}")
                }
                ("/zipped", _) => {
                    "200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx".to_owned()
                }
                ("/host", _) => {
                    let host = head
                        .lines()
                        .find_map(|line| line.strip_prefix("host: "))
                        .unwrap_or("none");
                    format!("200 OK\r\nContent-Length: {}\r\n\r\n{host}", host.len())
                }
                _ => "200 OK\r\nContent-Length: 4\r\n\r\ngood".to_owned(),
            };
            let _ = stream
                .write_all(format!("HTTP/1.1 {answer}").as_bytes())
                .await;
        }
    });
    port
}

/// Allows good.test at its port and its address, and nothing else.
fn only_good(port: u16) -> MediaPolicy {
    MediaPolicy {
        hosts: vec![HostRule::parse(&format!("good.test:{port}")).unwrap()],
        addresses: vec![AddressRange::parse("127.0.0.2").unwrap()],
        max_bytes: 200,
        timeout: Duration::from_secs(5),
        ..MediaPolicy::default()
    }
}

#[tokio::test]
async fn se02_each_hop_is_checked_again() {
    let canary = Canary::start().await;
    let trap = canary.port;
    let table = HashMap::from([
        ("/canary", format!("http://127.0.0.1:{trap}/")),
        ("/port", format!("http://good.test:{trap}/")),
        ("/scheme", "file:///etc/passwd".to_owned()),
        ("/once", "/here".to_owned()),
        ("/loop", "/loop".to_owned()),
        ("/suffix", format!("http://good.test.evil.test:{trap}/")),
        ("/user", format!("http://good.test@evil.test:{trap}/")),
        ("/empty", String::new()),
    ]);
    let port = good_host(table).await;
    let names = Names::new(&[
        ("good.test", &["127.0.0.2"]),
        ("evil.test", &["127.0.0.1"]),
        ("good.test.evil.test", &["127.0.0.1"]),
    ]);
    let fetcher = Fetcher::new(only_good(port), names.clone()).unwrap();
    let get = async |path: &str| {
        fetcher
            .fetch(&format!("http://good.test:{port}{path}"))
            .await
    };
    assert_eq!(get("/").await.unwrap(), "good");
    assert_eq!(get("/once").await.unwrap(), "good");
    assert_eq!(get("/host").await.unwrap(), format!("good.test:{port}"));
    assert_eq!(names.asked.load(Ordering::SeqCst), 4, "one lookup a hop");
    assert_eq!(get("/loop").await.unwrap_err(), MediaError::Redirects(3));
    for path in [
        "/canary", "/port", "/scheme", "/suffix", "/user", "/long", "/endless", "/zipped",
    ] {
        check_text(&get(path).await.expect_err(path));
    }
    for url in [
        format!("http://good.test.evil.test:{port}/"),
        format!("http://evil.test:{trap}#good.test"),
        format!("http://good.test:{port}@evil.test:{trap}/"),
        format!("http://good.test\\@evil.test:{trap}/"),
        format!("http://evil.test:{trap}\\.good.test:{port}/"),
        format!("http://user:word@good.test:{port}/"),
        format!("http://127.0.0.2:{port}/"),
    ] {
        check_text(&fetcher.fetch(&url).await.expect_err(&url));
    }
    assert_eq!(canary.connections(), 0);
    assert!(!is_public("127.0.0.2".parse().unwrap()));
}

#[tokio::test]
async fn se02_an_address_that_is_allowed_for_one_host_is_not_for_others() {
    let port = good_host(HashMap::new()).await;
    let names = Names::new(&[("other.test", &["127.0.0.2"])]);
    let policy = MediaPolicy {
        any_public_host: true,
        ..only_good(port)
    };
    let fetcher = Fetcher::new(policy, names).unwrap();
    let error = fetcher.fetch("http://other.test/").await.unwrap_err();
    assert_eq!(error, MediaError::Refused("the host is not a public one"));
}

#[tokio::test]
async fn data_and_files_have_rules_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let outside = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(folder.path().join("in"), "inside").unwrap();
    std::os::unix::fs::symlink(outside.path(), folder.path().join("link")).unwrap();
    let policy = MediaPolicy {
        local_root: Some(folder.path().to_owned()),
        max_bytes: 8,
        ..MediaPolicy::default()
    };
    let fetcher = Fetcher::new(policy, Names::default()).unwrap();
    let get = async |url: &str| fetcher.fetch(url).await;
    assert_eq!(
        get("data:image/png;base64,aGVsbG8=").await.unwrap(),
        "hello"
    );
    assert_eq!(get("data:image/png,hello").await, Err(MediaError::Data));
    assert_eq!(get("data:;base64,!!").await, Err(MediaError::Data));
    let long = format!("data:;base64,{}", "aGVsbG8h".repeat(5));
    assert_eq!(get(&long).await, Err(MediaError::TooLarge(8)));
    let file = |name: &str| format!("file://{}/{name}", folder.path().display());
    assert_eq!(get(&file("in")).await.unwrap(), "inside");
    for url in [
        file("link"),
        file("../etc/passwd"),
        file("%2e%2e/x"),
        "file:///etc/passwd".to_owned(),
    ] {
        assert!(get(&url).await.is_err(), "{url}");
    }
}

#[tokio::test]
async fn a_server_that_says_nothing_is_given_up() {
    let listener = TcpListener::bind("127.0.0.2:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let policy = MediaPolicy {
        timeout: Duration::from_millis(200),
        ..only_good(port)
    };
    let fetcher = Fetcher::new(policy, Names::new(&[("good.test", &["127.0.0.2"])])).unwrap();
    let error = fetcher
        .fetch(&format!("http://good.test:{port}/"))
        .await
        .unwrap_err();
    assert!(error.to_string().contains("too long"), "{error}");
}
