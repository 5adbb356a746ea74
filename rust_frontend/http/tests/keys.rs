//! Every route, made from the table of routes: without a key, with a key of each role.

#![allow(clippy::unwrap_used)]

mod support;

use octavo_edge::{Access, Keys, Role};
use octavo_http::ACCESS;
use support::{Server, within};

const KEYS: [(Role, &str); 4] = [
    (Role::Inference, "inference-key"),
    (Role::Render, "render-key"),
    (Role::Metrics, "metrics-key"),
    (Role::Admin, "admin-key"),
];

fn keys() -> Keys {
    let lines: String = KEYS
        .iter()
        .map(|(role, key)| format!("{} {key}\n", role.name()))
        .collect();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keys");
    std::fs::write(&file, lines).unwrap();
    Keys::new(&[], Some(&file)).unwrap()
}

/// The paths of HTTP.
fn table() -> impl Iterator<Item = &'static (&'static str, Access)> {
    ACCESS
        .iter()
        .filter(|(path, _)| !path.ends_with("/{method}"))
}

/// A request to a path of the table: an empty GET or a POST of an empty object, with a key or without.
fn request(method: &str, path: &str, key: Option<&str>) -> String {
    let path = path.replace("{*name}", "test").replace("{id}", "x");
    let header = key.map_or_else(String::new, |key| {
        format!("authorization: Bearer {key}\r\n")
    });
    format!(
        "{method} {path} HTTP/1.1\r\nhost: x\r\n{header}content-type: application/json\r\ncontent-length: 2\r\n\r\n{{}}"
    )
}

#[test]
fn a_route_opens_to_its_role_alone() {
    within(async {
        let server = Server::locked(keys()).await;
        for (path, access) in table() {
            for method in ["GET", "POST"] {
                let mut statuses = Vec::new();
                for key in [None, Some("some-other-key")]
                    .into_iter()
                    .chain(KEYS.map(|(_, key)| Some(key)))
                {
                    let mut client = server.connect().await;
                    client.send(request(method, path, key).as_bytes()).await;
                    statuses.push(client.reply().await.head.status);
                }
                match access {
                    Access::Open => assert!(
                        statuses.iter().all(|status| ![401, 403].contains(status)),
                        "{method} {path}: {statuses:?}"
                    ),
                    Access::Needs(role) if statuses != [405; 6] => {
                        assert_eq!(statuses[..2], [401, 401], "{method} {path}");
                        for ((has, _), status) in KEYS.iter().zip(&statuses[2..]) {
                            assert_eq!(
                                has != role,
                                *status == 403,
                                "{method} {path}: {statuses:?}"
                            );
                        }
                    }
                    Access::Needs(_) => {}
                }
            }
        }
    });
}

#[test]
fn every_route_of_the_table_exists() {
    within(async {
        let server = Server::start().await;
        for (path, _) in table() {
            let mut found = false;
            for method in ["GET", "POST"] {
                let mut client = server.connect().await;
                client.send(request(method, path, None).as_bytes()).await;
                found |= client.reply().await.head.status != 405;
            }
            assert!(found, "{path}");
            let mut client = server.connect().await;
            client.send(request("PUT", path, None).as_bytes()).await;
            assert_eq!(client.reply().await.head.status, 405, "{path} is no route");
        }
    });
}

#[test]
fn every_route_is_in_the_table() {
    let app = include_str!("../src/app.rs").split(".route(\"").skip(1);
    let pooling = include_str!("../src/pooling/mod.rs")
        .split(".route(\"")
        .skip(1);
    let rendering = include_str!("../../render_http/src/service.rs")
        .split("=> \"/")
        .skip(1);
    let control = include_str!("../src/control.rs")
        .split("post(\"/")
        .flat_map(|part| part.split("get(\"/"))
        .skip(1);
    let paths: Vec<String> = app
        .chain(pooling)
        .map(str::to_owned)
        .chain(rendering.map(|rest| format!("/{rest}")))
        .chain(control.map(|rest| format!("/{rest}")))
        .filter_map(|rest| rest.split('"').next().map(str::to_owned))
        .collect();
    assert!(paths.len() >= 45, "{paths:?}");
    for path in paths {
        assert!(ACCESS.iter().any(|(known, _)| *known == path), "{path}");
    }
}

/// The roles that docs/security.md gives the routes: of each row of its table the role and what stands in backticks.
fn documented() -> Vec<(String, Vec<String>)> {
    let page = include_str!("../../../docs/security.md");
    let rows = page
        .lines()
        .skip_while(|line| *line != "| role | routes |")
        .skip(2)
        .take_while(|line| line.starts_with('|'));
    rows.map(|row| {
        let mut cells = row.trim_matches('|').split('|').map(str::trim);
        let role = cells.next().unwrap().trim_matches('`').to_owned();
        let routes = cells.next().unwrap().split('`').skip(1).step_by(2);
        (role, routes.map(str::to_owned).collect())
    })
    .collect()
}

#[test]
fn the_table_in_the_docs_is_this_one() {
    let documented = documented();
    let mut shown: Vec<(&str, &str)> = documented
        .iter()
        .flat_map(|(role, routes)| routes.iter().map(|route| (role.as_str(), route.as_str())))
        .collect();
    let mut wanted: Vec<(&str, &str)> = ACCESS
        .iter()
        .map(|(path, access)| {
            let role = match access {
                Access::Open => "none",
                Access::Needs(role) => role.name(),
            };
            let service = path.strip_suffix("/{method}");
            (
                role,
                service.map_or(*path, |name| name.trim_start_matches('/')),
            )
        })
        .collect();
    shown.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(shown, wanted);
}
