//! Opcodes by family, and every trap a pickle is known to hold.

use super::*;
use crate::{error::Fault, limits::Limits};

fn follow(bytes: impl Into<Vec<u8>>) -> Pickle {
    unpickle(&bytes.into().into(), 0, &Limits::default())
}

/// The root of a pickle that must be whole.
fn root(bytes: &[u8]) -> (Graph, Id) {
    let pickle = follow(bytes);
    let end = pickle.result.expect("a whole pickle");
    assert_eq!(end.at, bytes.len());
    (pickle.graph, end.root)
}

fn fault(bytes: &[u8]) -> Fault {
    follow(bytes).result.expect_err("no pickle")
}

fn ints(graph: &Graph, id: Id) -> Vec<i64> {
    graph
        .sequence(id)
        .expect("a sequence")
        .iter()
        .map(|id| graph.int(*id).expect("an integer"))
        .collect()
}

#[test]
fn integers_of_every_width_and_protocol() {
    let (graph, id) = root(b"(K\x07M\x00\x01J\xff\xff\xff\xffI42\nL-5L\n\x8a\x02\x00\x80\x8b\x01\x00\x00\x00\x7f\x8a\x00t.");
    assert_eq!(ints(&graph, id), [7, 256, -1, 42, -5, -32768, 127, 0]);
}

#[test]
fn integers_beyond_64_bits_stay_in_the_file() {
    let (graph, id) = root(b"\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00\x01.");
    assert!(matches!(graph.node(id), Node::Long(_)));
    let (graph, id) = root(b"L123456789012345678901234567890L\n.");
    assert!(matches!(graph.node(id), Node::Digits(span) if graph.raw(span).len() == 30));
}

#[test]
fn booleans_none_and_floats() {
    let (graph, id) = root(b"(NI01\nI00\n\x88\x89F1.5\nG\x3f\xf8\x00\x00\x00\x00\x00\x00t.");
    let nodes: Vec<String> = graph
        .sequence(id)
        .unwrap()
        .iter()
        .map(|id| format!("{:?}", graph.node(*id)))
        .collect();
    assert_eq!(
        nodes,
        [
            "None",
            "Bool(true)",
            "Bool(false)",
            "Bool(true)",
            "Bool(false)",
            "Float(1.5)",
            "Float(1.5)"
        ]
    );
}

#[test]
fn strings_of_every_protocol_are_text() {
    let (graph, id) =
        root(b"(S'a\\n'\nU\x01bT\x01\x00\x00\x00cVd\\u00e9\nX\x01\x00\x00\x00e\x8c\x01f\x8d\x01\x00\x00\x00\x00\x00\x00\x00gU\x01\xe9t.");
    let texts: Vec<_> = graph
        .sequence(id)
        .unwrap()
        .iter()
        .map(|id| graph.text(*id).unwrap().into_owned())
        .collect();
    assert_eq!(texts, ["a\n", "b", "c", "d\u{e9}", "e", "f", "g", "\u{e9}"]);
}

#[test]
fn bytes_are_ranges_of_the_input() {
    let (graph, id) = root(b"(B\x02\x00\x00\x00ab\x43\x01c\x8e\x01\x00\x00\x00\x00\x00\x00\x00d\x96\x01\x00\x00\x00\x00\x00\x00\x00et.");
    let raw: Vec<&[u8]> = graph
        .sequence(id)
        .unwrap()
        .iter()
        .map(|id| match graph.node(*id) {
            Node::Bytes(span) => graph.raw(span),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(raw, [&b"ab"[..], b"c", b"d", b"e"]);
}

#[test]
fn containers_are_filled_in_pieces() {
    let (graph, id) = root(b"](K\x01K\x02eK\x03a.");
    assert_eq!(ints(&graph, id), [1, 2, 3]);
    let (graph, id) = root(b"}U\x01aK\x01s(U\x01bK\x02u.");
    assert_eq!(graph.get(id, "b").and_then(|id| graph.int(id)), Some(2));
    let (graph, id) = root(b"\x8f(K\x01\x90.");
    assert_eq!(ints(&graph, id), [1]);
    let (graph, id) = root(b"(K\x01K\x02d.");
    assert_eq!(graph.pairs(id).unwrap().len(), 1);
}

#[test]
fn a_list_filled_after_it_was_remembered_is_seen_full_everywhere() {
    let (graph, id) = root(b"]q\x00K\x07ah\x00\x86.");
    let pair = graph.sequence(id).unwrap().into_owned();
    assert_eq!(ints(&graph, pair[0]), [7]);
    assert_eq!(pair[0], pair[1]);
}

#[test]
fn every_way_to_call_is_a_call_that_is_not_made() {
    let ways: [&[u8]; 6] = [
        b"cos\nsystem\n(U\x01xtR.",
        b"cos\nsystem\n)\x81.",
        b"cos\nsystem\n)}\x92.",
        b"(U\x01xios\nsystem\n.",
        b"(cos\nsystem\nU\x01xo.",
        b"\x8c\x02os\x8c\x06system\x93)R.",
    ];
    for way in ways {
        let (graph, id) = root(way);
        let (function, _) = graph.call(id).expect("a call");
        assert_eq!(graph.global_name(function), Some("os.system"), "{way:?}");
    }
}

#[test]
fn a_call_whose_result_is_popped_is_still_in_the_graph() {
    let (graph, id) = root(b"cos\nsystem\n)R0N.");
    assert!(matches!(graph.node(id), Node::None));
    assert!(
        graph
            .nodes()
            .any(|(_, node)| matches!(node, Node::Call { .. }))
    );
}

#[test]
fn a_call_before_a_fault_is_still_in_the_graph() {
    let pickle = follow(&b"cos\nsystem\n)R\xff"[..]);
    assert!(matches!(pickle.result, Err(Fault::CorruptPickle { .. })));
    assert!(
        pickle
            .graph
            .nodes()
            .any(|(_, node)| matches!(node, Node::Call { .. }))
    );
}

#[test]
fn state_and_items_of_objects_are_kept() {
    let (graph, id) = root(b"cm\nC\n)\x81}U\x01aK\x01sb(K\x05eU\x01kK\x06s.");
    let extra = graph.extra(id).unwrap();
    assert_eq!(
        graph.get(extra.state, "a").and_then(|id| graph.int(id)),
        Some(1)
    );
    assert_eq!(graph.chain(extra.items).len(), 1);
    assert_eq!(graph.pairs_of(extra.pairs).len(), 1);
}

#[test]
fn a_memo_index_of_four_billion_costs_one_entry() {
    let (graph, id) = root(b"K\x05r\xff\xff\xff\xffj\xff\xff\xff\xff\x86.");
    assert_eq!(ints(&graph, id), [5, 5]);
    assert!(matches!(
        fault(b"K\x05p99999999999999999999999\n."),
        Fault::CorruptPickle { .. }
    ));
    assert!(matches!(fault(b"h\x07."), Fault::CorruptPickle { .. }));
}

#[test]
fn three_hundred_thousand_levels_are_read_and_dropped_without_a_stack() {
    let mut deep = vec![b']'; 300_000];
    deep.extend(vec![b'a'; 299_999]);
    deep.push(b'.');
    drop(root(&deep));
    let mut deep = vec![b')'];
    deep.extend(vec![0x85; 300_000]);
    deep.push(b'.');
    drop(root(&deep));
}

#[test]
fn lengths_are_checked_before_anything_is_made() {
    for lie in [
        &b"X\xff\xff\xff\xff."[..],
        b"\x8d\xff\xff\xff\xff\xff\xff\xff\x3f.",
        b"\x8e\xff\xff\xff\xff\xff\xff\xff\xff.",
        b"\x8b\xff\xff\xff\x7f.",
        b"\x95\xff\xff\xff\xff\xff\xff\xff\x7fN.",
        b"cos\nsystem",
        b"",
        b"N",
    ] {
        assert!(matches!(fault(lie), Fault::Truncated { .. }), "{lie:?}");
    }
    assert!(matches!(
        fault(b"\x8b\xff\xff\xff\xff."),
        Fault::CorruptPickle { .. }
    ));
    assert!(matches!(
        fault(b"T\xff\xff\xff\xff."),
        Fault::CorruptPickle { .. }
    ));
}

#[test]
fn misuse_of_the_stack_is_refused() {
    for bad in [
        &b"."[..],
        b"(.",
        b"0.",
        b"1.",
        b"K\x01\x87.",
        b"(K\x01d.",
        b"}K\x01a.",
        b"NK\x01K\x02s.",
        b"NNR.",
        b"(o.",
        b"R.",
        b"(NNt\xff.",
        b"NNb.",
    ] {
        assert!(matches!(fault(bad), Fault::CorruptPickle { .. }), "{bad:?}");
    }
    for unsupported in [
        &b"\x82\x01."[..],
        b"\x83\x01\x00.",
        b"\x97.",
        b"N\x98.",
        b"\x80\x63N.",
    ] {
        assert!(
            matches!(fault(unsupported), Fault::Unsupported { .. }),
            "{unsupported:?}"
        );
    }
}

#[test]
fn a_flood_of_objects_stops_at_a_limit() {
    let limits = Limits {
        pickle_ops: 1000,
        ..Limits::default()
    };
    let pickle = unpickle(&vec![b'('; 10_000].into(), 0, &limits);
    assert!(matches!(pickle.result, Err(Fault::Limit { .. })));
}

#[test]
fn a_list_of_two_million_small_integers_is_within_the_budget() {
    let mut pickle = b"\x80\x02](".to_vec();
    (0..2_000_000u32).for_each(|number| pickle.extend([b'M', number as u8, 7]));
    pickle.extend(b"e.");
    assert!(
        unpickle(&pickle.into(), 0, &Limits::default())
            .result
            .is_ok()
    );
}

proptest::proptest! {
    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..400)) {
        let _ = follow(bytes);
    }

    /// Bytes that are nearly always opcodes get further than random ones.
    #[test]
    fn random_opcodes_never_panic(picks in proptest::collection::vec(0usize..60, 0..200)) {
        let ops = b"(.012NK\x01M\x01\x01]}()tlda\x85\x86\x87esubhq\x00\x8f\x90\x91\x94cos\nsystem\nRo\x81\x92QU\x01a\x88\x93";
        let bytes: Vec<u8> = picks.iter().map(|pick| ops[pick % ops.len()]).collect();
        let _ = follow(bytes);
    }
}
