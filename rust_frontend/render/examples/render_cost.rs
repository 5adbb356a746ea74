//! What conversations cost: `render_cost FOLDER render|chat < bodies.jsonl` renders each, or renders and tokenizes it, and prints
//! tokens (of `chat`), allocations and nanoseconds of all. `python -m bench.render --cost` runs it; run it with `--release`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

use std::hint::black_box;
use std::io::Read as _;
use std::path::Path;
use std::time::Instant;

use octavo_api::{Body, ChatRequest};
use octavo_render::Renderer;
use serde_json::json;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().expect("the model's folder");
    let encode = arguments.next().is_some_and(|what| what == "chat");
    let renderer = Renderer::load(Path::new(&folder), None).expect("a model's folder");
    let mut input = String::new();
    std::io::stdin().read_to_string(&mut input).expect("bodies");
    let (mut tokens, mut allocations, mut ns) = (0, 0, 0);
    for line in input.lines() {
        let begun = Instant::now();
        let made = allocation_counter::measure(|| {
            let body = Body::parse_chat(line.as_bytes(), renderer.seen()).expect("JSON");
            let request = ChatRequest::from_body(body).expect("a chat");
            let text = renderer.chat_text(&request).expect("a prompt");
            if encode {
                tokens += renderer
                    .tokenizer()
                    .encode(&text, false)
                    .expect("ids")
                    .len();
            }
            black_box(text);
        });
        ns += begun.elapsed().as_nanos();
        allocations += made.count_total;
    }
    println!(
        "{}",
        json!({"tokens": tokens, "allocations": allocations, "ns": ns as f64})
    );
}
