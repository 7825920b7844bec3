//! Time and memory to parse one Prometheus answer: series by series as the collector does, and as a whole for
//! comparison. 4,000 pods is the reference size of all figures of this project; 200,000 is the largest answer.

#![expect(clippy::unwrap_used, reason = "a bench: its input is its own")]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::io::{self, Read};

use criterion::{Criterion, criterion_group, criterion_main};
use serde::Deserialize;
use wva_controller::bench::{ManagedPods, rows};

/// A generated answer with one series per pod.
struct GeneratedAnswer {
    pods: usize,
    next: usize,
    text: Vec<u8>,
    read: usize,
}

impl GeneratedAnswer {
    fn new(pods: usize) -> Self {
        let text = br#"{"status":"success","data":{"resultType":"vector","result":["#.to_vec();
        Self { pods, next: 0, text, read: 0 }
    }

    fn refill(&mut self) {
        self.read = 0;
        self.text.clear();
        let i = self.next;
        self.next += 1;
        if i > self.pods {
            return;
        }
        let text = if i == self.pods {
            "]}}".to_owned()
        } else {
            format!(
                r#"{}{{"metric":{{"model_name":"meta-llama/Llama-3.1-70B-Instruct-{:04}","namespace":"{}","pod":"{}"}},"value":[1763766000.123,"0.{:06}"]}}"#,
                if i == 0 { "" } else { "," },
                i / 4,
                namespace(i),
                pod(i),
                i % 1_000_000,
            )
        };
        self.text.extend_from_slice(text.as_bytes());
    }
}

fn namespace(i: usize) -> String {
    format!("team-{:02}", i % 20)
}

fn pod(i: usize) -> String {
    format!("ms-llama-70b-h100-decode-5b8f9d7c6-{i:05}")
}

fn managed(pods: usize) -> ManagedPods {
    ManagedPods::new((0..pods).map(|i| (namespace(i), pod(i))))
}

impl Read for GeneratedAnswer {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.read == self.text.len() {
            self.refill();
        }
        let n = into.len().min(self.text.len() - self.read);
        into[..n].copy_from_slice(&self.text[self.read..self.read + n]);
        self.read += n;
        Ok(n)
    }
}

/// An answer parsed as a whole, with a map of labels for each series.
#[derive(Deserialize)]
struct WholeAnswer {
    data: WholeData,
}

#[derive(Deserialize)]
struct WholeData {
    result: Vec<WholeSeries>,
}

#[derive(Deserialize)]
struct WholeSeries {
    metric: BTreeMap<String, String>,
    value: (f64, String),
}

fn parse_whole(pods: usize) -> WholeAnswer {
    let mut body = Vec::new();
    GeneratedAnswer::new(pods).read_to_end(&mut body).unwrap();
    serde_json::from_slice(&body).unwrap()
}

/// Peak memory of this process, in KiB.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[expect(clippy::print_stdout, reason = "criterion does not measure memory")]
fn print_memory() {
    // The peak only rises, so the smaller size comes first.
    for pods in [4_000, 200_000] {
        let managed = managed(pods);
        let before = peak_memory();
        let kept = rows(GeneratedAnswer::new(pods), &managed).unwrap();
        let streamed = peak_memory();
        assert_eq!(kept.len(), pods);
        drop(kept);
        let kept = parse_whole(pods);
        assert!(kept.data.result.iter().all(|s| s.metric.len() == 3 && !s.value.1.is_empty()));
        println!(
            "memory of {pods} series: {} KiB as they arrive, {} KiB whole",
            streamed - before,
            peak_memory() - before
        );
    }
}

fn parse(c: &mut Criterion) {
    print_memory();
    let mut body = Vec::new();
    GeneratedAnswer::new(4_000).read_to_end(&mut body).unwrap();
    let managed = managed(4_000);
    let mut group = c.benchmark_group("4,000 series");
    group.bench_function("as they arrive", |b| b.iter(|| rows(black_box(&*body), &managed).unwrap()));
    group.bench_function("whole", |b| {
        b.iter(|| serde_json::from_slice::<WholeAnswer>(black_box(&body)).unwrap());
    });
    group.finish();
}

criterion_group!(benches, parse);
criterion_main!(benches);
