//! Without threads of the library's own: in which order an application that polls has things done.

use lacuna::datapath::Datapath;
use lacuna::datapath::testing::judged;
use lacuna::{ConnectionConfig, Context, ContextConfig, Mode, Progress};
use lacuna_wire::{Packet, parse};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Of each packet that has left, whether it was data.
type Sent = Arc<Mutex<Vec<bool>>>;

fn context(sent: &Sent) -> Context {
    let sent = sent.clone();
    let wrap = move |_, inner| -> Box<dyn Datapath> {
        let sent = sent.clone();
        Box::new(judged(inner, move |packet| {
            let is_data = matches!(parse(packet), Ok(Packet::Data(..)));
            sent.lock().unwrap().push(is_data);
            true
        }))
    };
    Context::new(ContextConfig {
        bind: LOCALHOST,
        progress: Progress::Manual,
        wrap: Some(Arc::new(wrap)),
        ..ContextConfig::default()
    })
    .unwrap()
}

#[test]
fn an_answer_leaves_before_the_word_that_the_message_came() {
    let config = ConnectionConfig { mode: Mode::SR, ..ConnectionConfig::default() };
    let sent = Sent::default();
    let (here, there) = (context(&Sent::default()), context(&sent));
    let (a, b) = (here.queue_pair(&config).unwrap(), there.queue_pair(&config).unwrap());
    a.connect(&b.info(LOCALHOST)).unwrap();
    b.connect(&a.info(LOCALHOST)).unwrap();
    let answer = a.post_recv(vec![0; 64]).unwrap();
    let message = b.post_recv(vec![0; 64]).unwrap();
    while !a.is_clear_to_send() || !b.is_clear_to_send() {
        here.progress();
        there.progress();
    }

    let asking = a.send(vec![1; 64], None).unwrap();
    let before = loop {
        here.progress();
        let before = sent.lock().unwrap().len();
        assert!(there.progress() || !message.is_complete(), "there is something left to do");
        if message.is_complete() {
            break before;
        }
    };
    let answering = b.send(vec![2; 64], None).unwrap();
    there.progress();
    {
        let sent = sent.lock().unwrap();
        assert_eq!(sent.get(before), Some(&true), "data first: {:?}", &sent[before..]);
        assert_eq!(sent.last(), Some(&false), "then the word: {:?}", &sent[before..]);
    }

    while !(answer.is_complete() && asking.is_done() && answering.is_done()) {
        here.progress();
        there.progress();
    }
    assert_eq!(answer.complete().buffer, [2; 64]);
}
