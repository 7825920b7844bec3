//! A server against queueing theory, and against what vLLM's scheduler does.

mod scheduler;
mod theory;

use super::*;
use crate::fleet::engine::StepTokens;

/// Steps of 1 ms that nothing makes longer, so that a request with n output tokens takes n ms.
const PLAIN: Engine = Engine {
    step: 0.001,
    per_sequence: 0.0,
    per_prompt_token: 0.0,
    per_cached_token: 0.0,
    max_seqs: 1,
    max_batched_tokens: 1 << 20,
    block_size: 1,
    kv_blocks: 1 << 40,
    prefix_hit_rate: 0.0,
    tokens: StepTokens::ONE,
};

/// Serves requests, which come in order of arrival, and hands each over when it is done.
fn serve(
    engine: Engine,
    client_timeout: f64,
    requests: impl Iterator<Item = Request>,
    mut done: impl FnMut(ServedRequest),
) -> Server {
    let mut server = Server::new(engine, client_timeout);
    let mut finished = FinishedRequests::default();
    let mut requests = requests.peekable();
    loop {
        let next = requests.peek().map_or(f64::INFINITY, |r| r.arrived);
        let event = server.next_event();
        if event.is_infinite() && next.is_infinite() {
            return server;
        }
        if event <= next {
            server.advance(event, &mut finished);
        } else if let Some(request) = requests.next() {
            server.push(request, next, &mut finished);
        }
        finished.served.drain(..).for_each(&mut done);
    }
}

fn served(engine: Engine, requests: &[Request]) -> (Vec<ServedRequest>, Server) {
    let mut all = Vec::new();
    let server = serve(engine, f64::INFINITY, requests.iter().copied(), |s| all.push(s));
    all.sort_by(|a, b| a.request.arrived.total_cmp(&b.request.arrived));
    (all, server)
}
