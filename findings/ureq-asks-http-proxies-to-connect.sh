#!/usr/bin/env bash
# ureq 3.5.2 (crates.io) asks a proxy for `http://` addresses with CONNECT, as for `https://`. curl, wget and Python's
# urllib send the proxy a whole request instead (GET http://host/path). Squid's usual configuration permits CONNECT only
# for port 443. So with the same variables those programs work, and ureq fails. ureq also takes one proxy from the
# environment for both schemes: the first of ALL_PROXY, HTTPS_PROXY and HTTP_PROXY that is set. If https_proxy and
# http_proxy are both set, as on many company networks, it sends a request for an `http://` address to the proxy for
# `https://`. Output seen, with ureq 3.5.2 and Rust 1.95:
#   only http_proxy:   http proxy was asked: CONNECT files.example:80 HTTP/1.1
#   both are set:      https proxy was asked: CONNECT files.example:80 HTTP/1.1
#   urllib, only http_proxy:   http proxy was asked: GET http://files.example/x HTTP/1.1
# Needs cargo and Python. Fails if ureq behaves otherwise.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir "$dir/src"
cat >"$dir/Cargo.toml" <<'TOML'
[package]
name = "ask"
version = "0.0.0"
edition = "2021"

[dependencies]
ureq = { version = "=3.5.2", default-features = false }

[workspace]
TOML
cat >"$dir/src/main.rs" <<'RUST'
fn main() {
    // The proxy refuses, so the request fails; what the proxy was asked is the answer.
    let _ = ureq::get("http://files.example/x").call();
}
RUST
cargo build --quiet --manifest-path "$dir/Cargo.toml" --target-dir "$dir/target"
cat >"$dir/ask.py" <<'PYTHON'
import os, socket, subprocess, sys, threading, urllib.request

program = sys.argv[1]


def proxy(name, seen):
    """A proxy that notes the first line of a request and refuses it. Returns its address."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        while True:
            client, _ = listener.accept()
            request = b""
            while b"\r\n\r\n" not in request and (more := client.recv(4096)):
                request += more
            line = request.split(b"\r\n")[0].decode()
            seen.append(f"{name} was asked: {line}")
            client.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            client.close()

    threading.Thread(target=serve, daemon=True).start()
    return "http://127.0.0.1:%d" % listener.getsockname()[1]


seen = []
http, https = proxy("http proxy", seen), proxy("https proxy", seen)
bare = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}


def ask(**proxies):
    subprocess.run([program], env=dict(bare, **proxies), timeout=60)
    return seen.pop() if seen else "nobody was asked"


results = {
    "only http_proxy": ask(http_proxy=http),
    "both are set": ask(http_proxy=http, https_proxy=https),
}
opener = urllib.request.build_opener(urllib.request.ProxyHandler({"http": http}))
try:
    opener.open("http://files.example/x")
except OSError:
    pass
results["urllib, only http_proxy"] = seen.pop()
for name, result in results.items():
    print(f"{name}:   {result}")
expected = [
    "http proxy was asked: CONNECT files.example:80 HTTP/1.1",
    "https proxy was asked: CONNECT files.example:80 HTTP/1.1",
    "http proxy was asked: GET http://files.example/x HTTP/1.1",
]
sys.exit(list(results.values()) != expected)
PYTHON
python3 "$dir/ask.py" "$dir/target/debug/ask"
