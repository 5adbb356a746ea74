//! A small HTTP/1.1 client that shows what is on the wire.

use std::collections::HashMap;
use std::net::SocketAddr;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

pub struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
}

#[derive(Debug)]
pub struct Head {
    pub status: u16,
    pub headers: HashMap<String, String>,
}

#[derive(Debug)]
pub struct Reply {
    pub head: Head,
    pub body: Vec<u8>,
}

impl Reply {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&self.body)))
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    /// Asserts an error body, and returns the error.
    pub fn error(&self, status: u16, code: &str) -> Value {
        let body = self.json();
        assert_eq!(self.head.status, status, "{body}");
        assert_eq!(self.head.headers["content-type"], "application/json");
        let error = body["error"].clone();
        assert_eq!(error["code"], code, "{body}");
        let keys: Vec<_> = error.as_object().unwrap().keys().cloned().collect();
        assert_eq!(keys, ["message", "type", "param", "code"]);
        error
    }

    /// The events of a stream.
    pub fn events(&self) -> Vec<String> {
        events(&self.text())
    }
}

/// Splits a stream into the data of its events, without comments.
pub fn events(text: &str) -> Vec<String> {
    let (whole, rest) = text.rsplit_once("\n\n").unwrap_or(("", text));
    assert_eq!(rest, "", "an event is cut off");
    whole
        .split("\n\n")
        .filter(|event| !event.starts_with(':'))
        .map(|event| event.strip_prefix("data: ").expect(event).to_owned())
        .collect()
}

impl Client {
    pub async fn connect(address: SocketAddr) -> Self {
        Self {
            stream: TcpStream::connect(address).await.unwrap(),
            buffer: Vec::new(),
        }
    }

    /// Connects with little room for what the server sends.
    pub async fn connect_narrow(address: SocketAddr) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        Self {
            stream: socket.connect(address).await.unwrap(),
            buffer: Vec::new(),
        }
    }

    pub async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    /// Sends what the server may refuse to take.
    pub async fn try_send(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes).await;
    }

    pub async fn post(&mut self, path: &str, body: &Value) {
        self.post_bytes(path, "application/json", body.to_string().as_bytes())
            .await;
    }

    pub async fn post_bytes(&mut self, path: &str, kind: &str, body: &[u8]) {
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: test\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        self.send(&[head.as_bytes(), body].concat()).await;
    }

    pub async fn get(&mut self, path: &str) -> Reply {
        self.ask("GET", path).await
    }

    pub async fn ask(&mut self, method: &str, path: &str) -> Reply {
        self.send(format!("{method} {path} HTTP/1.1\r\nHost: test\r\n\r\n").as_bytes())
            .await;
        self.reply().await
    }

    pub async fn ask_json(&mut self, path: &str, body: &Value) -> Reply {
        self.post(path, body).await;
        self.reply().await
    }

    /// Reads a whole answer.
    pub async fn reply(&mut self) -> Reply {
        let head = self.head().await;
        let body = if head.headers.contains_key("transfer-encoding") {
            let mut body = Vec::new();
            while let Some(chunk) = self.chunk().await {
                body.extend_from_slice(&chunk);
            }
            body
        } else {
            let length = head.headers["content-length"].parse().unwrap();
            self.exact(length).await
        };
        Reply { head, body }
    }

    pub async fn head(&mut self) -> Head {
        let status = self.line().await;
        let mut headers = HashMap::new();
        loop {
            let line = self.line().await;
            let Some((name, value)) = line.split_once(": ") else {
                break;
            };
            headers.insert(name.to_ascii_lowercase(), value.to_owned());
        }
        Head {
            status: status.split(' ').nth(1).expect(&status).parse().unwrap(),
            headers,
        }
    }

    /// Reads one chunk of a chunked body, which is one write of the server.
    pub async fn chunk(&mut self) -> Option<Vec<u8>> {
        let size = usize::from_str_radix(&self.line().await, 16).unwrap();
        let data = self.exact(size).await;
        assert_eq!(self.line().await, "");
        (size > 0).then_some(data)
    }

    pub async fn text_chunk(&mut self) -> String {
        String::from_utf8(self.chunk().await.expect("the body has ended")).unwrap()
    }

    /// Whether the server has closed the connection, after nothing but what was read.
    pub async fn closed(&mut self) -> bool {
        self.buffer.is_empty() && matches!(self.stream.read(&mut [0]).await, Ok(0) | Err(_))
    }

    /// Reads so many bytes of a body and forgets them.
    pub async fn skip(&mut self, count: usize) {
        self.exact(count).await;
    }

    async fn line(&mut self) -> String {
        loop {
            if let Some(end) = self.buffer.windows(2).position(|pair| pair == b"\r\n") {
                let rest = self.buffer.split_off(end + 2);
                let mut line = std::mem::replace(&mut self.buffer, rest);
                line.truncate(end);
                return String::from_utf8(line).unwrap();
            }
            self.fill().await;
        }
    }

    async fn exact(&mut self, count: usize) -> Vec<u8> {
        while self.buffer.len() < count {
            self.fill().await;
        }
        let rest = self.buffer.split_off(count);
        std::mem::replace(&mut self.buffer, rest)
    }

    async fn fill(&mut self) {
        let count = self.stream.read_buf(&mut self.buffer).await.unwrap();
        assert!(
            count > 0,
            "the connection was closed after {:?}",
            String::from_utf8_lossy(&self.buffer)
        );
    }
}
