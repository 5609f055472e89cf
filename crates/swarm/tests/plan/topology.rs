//! Topologies as administrators write them.

use proptest::prelude::*;
use tidecast_swarm::plan::topology::{Map, TopologyError, Wrong};
use tidecast_swarm::plan::{Epoch, Member, Part, Plan};

fn wrong(line: usize, why: Wrong) -> Result<Map, TopologyError> {
    Err(TopologyError::Line { line, why })
}

/// Names from a place to the top.
fn path(map: &Map, host: &str) -> Vec<u32> {
    let mut path = vec![map.place(host, None)];
    while let Some(above) = map.places()[path[path.len() - 1] as usize].above {
        path.push(above);
    }
    path
}

#[test]
fn slurm() {
    let map = Map::from_slurm(
        "# topology.conf\nSwitchName=s0 Nodes=dev[0-5] LinkSpeed=100\nswitchname=s1 \\\n  nodes=dev-0,x[08-10]\n\nSwitchName=s2 Switches=s[0-1]\n",
    )
    .unwrap();
    let [s0, s1, s2] = ["s0", "s1", "s2"].map(|n| map.named(n).unwrap());
    assert_eq!(path(&map, "dev5"), [s0, s2, 0]);
    assert_eq!(path(&map, "x09.cluster.example"), [s1, s2, 0]);
    assert_eq!(path(&map, "dev6"), [0]);
    let blocks = Map::from_slurm("BlockName=b1 Nodes=n[1-2]\nBlockName=b2 Nodes=n3\nBlockSizes=1,2").unwrap();
    assert_eq!((blocks.place("n2", None), blocks.place("n3", None)), (1, 2));
}

#[test]
fn slurm_as_slurm_reads_it() {
    let text = "# made by a script\r\nSWITCHNAME = s0   NODES=\"n[0-1]\"   LinkSpeed=40000 # leaf\r\n\
                switchname=s1 nodes=n[2-3] \\\r\n linkspeed = 1\r\n\
                SwitchName=core Children=s0,s1\r\nSwitchName=alone\r\n";
    let map = Map::read(text).unwrap();
    let [s0, s1, core] = ["s0", "s1", "core"].map(|n| map.named(n).unwrap());
    assert_eq!((path(&map, "n1"), path(&map, "n3")), (vec![s0, core, 0], vec![s1, core, 0]));
    let blocks = Map::read("BlockSizes=2,4\nBlockName=b1 Nodes=n[1-2]\nBlockName=b2 Nodes=n[3-4]\n").unwrap();
    assert_eq!(blocks.listed(), [("n1", 1), ("n2", 1), ("n3", 2), ("n4", 2)]);
    // Lines that go on count, too.
    assert_eq!(
        Map::read("SwitchName=a \\\n Nodes=x \\\n LinkSpeed=1\nSwitchName=b Foo=1"),
        wrong(4, Wrong::Form)
    );
    for bad in ["SwitchName=a Nodes", "SwitchName=a Nodes=", "SwitchName=a Nodes=\"x", "SwitchName=a x y=1"] {
        assert_eq!(Map::read(bad), wrong(1, Wrong::Form), "{bad}");
    }
}

#[test]
fn slurm_takes_what_hangs_on_several_switches_and_so_does_the_map() {
    let fat = "AllowEmptySwitch=yes\nSwitchName=spine1 Switches=leaf[1-2]\nSwitchName=spine2 Switches=leaf[1-2]\n\
               SwitchName=leaf1 Nodes=n[1-2]\nSwitchName=leaf2 Nodes=n[2-3]\n";
    let map = Map::read(fat).unwrap();
    let [spine, leaf1, leaf2] = ["spine1", "leaf1", "leaf2"].map(|n| map.named(n).unwrap());
    assert_eq!((path(&map, "n2"), path(&map, "n3")), (vec![leaf1, spine, 0], vec![leaf2, spine, 0]));
    assert_eq!(map.repeated(), Some(("n2", 3)), "a node and two leaves");
    let yaml = "- topology: fat\n  tree:\n    switches:\n    - {switch: a, nodes: n1}\n\
                \x20   - {switch: b, children: a}\n    - {switch: c, children: a}\n";
    assert_eq!(Map::read(yaml).unwrap().repeated(), Some(("a", 1)));
    assert_eq!(Map::read("SwitchName=a Nodes=n1,n1").unwrap().repeated(), None);
}

#[test]
fn a_mark_of_byte_order_begins_no_name() {
    for text in [
        "SwitchName=s Nodes=n1",
        "- topology: x\n  tree:\n    switches:\n    - {switch: s, nodes: n1}\n",
        "s n1",
    ] {
        assert_eq!(Map::read(&format!("\u{feff}{text}")), Map::read(text), "{text}");
        assert!(Map::read(text).is_ok(), "{text}");
    }
}

const YAML: &str = "---
# of the site
- topology: flat
  flat: true
- topology: blocks
  cluster_default: false
  block:
    block_sizes: [2, 4]
    blocks:
      - block: b1
        nodes: n[1-2]
- topology: tree   # this one
  cluster_default: true
  tree:
    switches:
      - switch: root
        children: s[1-2]
      - switch: s1
        nodes: n[1-2]
      - {switch: s2, nodes: 'n3,n4', link_speed: 100}
";

#[test]
fn slurms_yaml() {
    let map = Map::read(YAML).unwrap();
    let [root, s1, s2] = ["root", "s1", "s2"].map(|n| map.named(n).unwrap());
    assert_eq!((path(&map, "n2"), path(&map, "n4")), (vec![s1, root, 0], vec![s2, root, 0]));
    let first =
        Map::read("- topology: a\n  block:\n    blocks:\n    - block: b\n      nodes: [x, 'y[1-2]']\n");
    assert_eq!(first.unwrap().listed(), [("x", 1), ("y1", 1), ("y2", 1)]);
    let bare = Map::read("tree:\n  switches:\n  - switch: s\n    nodes: x\n").unwrap();
    assert_eq!(bare.listed(), [("x", 1)]);
}

#[test]
fn yaml_gone_wrong() {
    for (text, line, why) in [
        ("- topology: a\n  flat: true\n", 1, Wrong::Flat),
        ("---\n- a\n- b\n", 2, Wrong::Yaml),
        ("- topology: a\n  tree:\n    switches:\n    - switch: s\n      nodes: n[\n", 4, Wrong::List),
        ("- topology: a\n  tree:\n    switches:\n    - switch: s\n      hosts: n1\n", 5, Wrong::Yaml),
        ("- topology: a\n  tree:\n    switches:\n    - nodes: n1\n", 4, Wrong::Yaml),
        ("- topology: a\n  tree:\n    switches:\n    - switch: s\n      children: x\n", 4, Wrong::Unknown),
        ("- topology: &x a\n  tree: *x\n", 2, Wrong::Yaml),
        ("- [\n", 2, Wrong::Yaml),
        ("---\n", 2, Wrong::Yaml),
        ("- topology: a\n\ttree: x\n", 1, Wrong::Yaml),
    ] {
        assert_eq!(Map::read(text), wrong(line, why), "{text}");
    }
    assert!(Map::read(&format!("- {}", "[".repeat(10_000))).is_err());
}

#[test]
fn prose_is_no_topology() {
    for (text, line) in
        [("hello world, this\n", 1), ("rack1 n1\nIt's here\n", 2), ("see: https://x.example/a b\n", 1)]
    {
        assert!(matches!(Map::read(text), Err(TopologyError::Line { line: at, .. }) if at == line), "{text}");
    }
    assert_eq!(Map::from_rules("rack n1 me@n2"), wrong(1, Wrong::Name));
    assert_eq!(Map::from_rules("rack n1:22"), wrong(1, Wrong::Name));
}

#[test]
fn slurm_gone_wrong() {
    assert_eq!(Map::from_slurm("Nodes=a"), wrong(1, Wrong::Form));
    assert_eq!(Map::from_slurm("\nSwitchName=a Foo=1"), wrong(2, Wrong::Form));
    assert_eq!(Map::from_slurm("SwitchName=a Nodes=b["), wrong(1, Wrong::List));
    assert_eq!(Map::from_slurm("SwitchName=a\nSwitchName=a"), wrong(2, Wrong::Twice));
    assert_eq!(Map::from_slurm("SwitchName=a Switches=b"), wrong(1, Wrong::Unknown));
    let ring = Err(TopologyError::Ring("a".into()));
    assert_eq!(Map::from_slurm("SwitchName=a Switches=a"), ring);
    let ring = Map::from_slurm("SwitchName=a Switches=b\nSwitchName=b Switches=a");
    assert!(matches!(ring, Err(TopologyError::Tree(_))));
    let many = "SwitchName=a Switches=s[1-60000]\nSwitchName=b Switches=t[1-60000]";
    assert_eq!(Map::from_slurm(many), wrong(2, Wrong::Many));
}

#[test]
fn lab() {
    let text = "switch a\nswitch b\nswitch c # last\nnodes 2 a 100mbit\nnodes 1 c 1gbit\nnodes 1 b 1gbit\n\
                link b a 20mbit delay=25ms\nlink b c 2.5gbit nat\n";
    let map = Map::from_lab(text).unwrap();
    let [a, b, c] = ["a", "b", "c"].map(|n| map.named(n).unwrap());
    assert_eq!(
        (path(&map, "n000"), path(&map, "n002"), path(&map, "n003")),
        (vec![a, 0], vec![c, b, a, 0], vec![b, a, 0])
    );
    assert_eq!([a, b, c].map(|p| map.places()[p as usize].rate), [0, 2_500_000, 312_500_000]);
    // A ring: each is at the smallest distance, and the rate of one link is not given.
    let ring = Map::from_lab("switch a\nswitch b\nswitch c\nlink a b 1gbit\nlink b c 1gbit\nlink c a 1gbit")
        .unwrap();
    assert_eq!([2, 3].map(|p| (ring.places()[p].above, ring.places()[p].rate)), [(Some(1), 0); 2]);
}

#[test]
fn lab_gone_wrong() {
    assert_eq!(Map::from_lab("switch a\nswitch a"), wrong(2, Wrong::Twice));
    assert_eq!(Map::from_lab("nodes 2 a 1gbit"), wrong(1, Wrong::Unknown));
    assert_eq!(Map::from_lab("switch a\nnodes 2 a fast"), wrong(2, Wrong::Rate));
    assert_eq!(Map::from_lab("switch a\nnodes 200001 a 1gbit"), wrong(2, Wrong::Many));
    assert_eq!(Map::from_lab("switch a\nlink a a 1gbit"), wrong(2, Wrong::Form));
    assert_eq!(Map::from_lab("hub a"), wrong(1, Wrong::Form));
}

#[test]
fn rules() {
    let map = Map::from_rules(
        "east rate=8gbit login[1-2]\neast/rack1 node[001-032] 10.1.1.0/24\nwest w-* 2001:db8:7::/48 10.0.0.0/8\n",
    )
    .unwrap();
    let [east, rack, west] = ["east", "east/rack1", "west"].map(|n| map.named(n).unwrap());
    assert_eq!(map.places()[east as usize].rate, 1_000_000_000);
    assert_eq!((path(&map, "node007"), path(&map, "login2")), (vec![rack, east, 0], vec![east, 0]));
    let at = |host, address: &str| map.place(host, Some(address.parse().unwrap()));
    assert_eq!(
        [at("x", "10.1.1.9"), at("x", "10.1.2.9"), at("x", "2001:db8:7:1::2"), at("x", "::ffff:10.9.9.9")],
        [rack, west, west, west]
    );
    assert_eq!(
        [at("w-3.example", "192.0.2.1"), at("x", "192.0.2.1"), at("node001", "10.9.9.9")],
        [west, 0, rack]
    );
}

#[test]
fn rules_gone_wrong() {
    assert_eq!(Map::from_rules("a/ b"), wrong(1, Wrong::Form));
    assert_eq!(Map::from_rules("/a b"), wrong(1, Wrong::Form));
    assert_eq!(Map::from_rules(&format!("a{} b", "/a".repeat(64))), wrong(1, Wrong::Form));
    for bad in ["10.0.0.0/33", "10.0.0.0/", "fd00::/129", "x/8"] {
        assert_eq!(Map::from_rules(&format!("a {bad}")), wrong(1, Wrong::Subnet), "{bad}");
    }
    assert_eq!(Map::from_rules("a rate=3"), wrong(1, Wrong::Rate));
    assert_eq!(Map::from_rules("a x,"), wrong(1, Wrong::List));
}

fn text() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        "[a-c]",
        "[a-c]\\[[0-9,-]{1,6}\\]",
        "SwitchName=[a-c]",
        "Switches=[a-c],[a-c]",
        "Nodes=[a-c]\\[[0-3]-[2-5]\\]",
        Just("switch".into()),
        Just("nodes".into()),
        Just("link".into()),
        Just("10mbit".into()),
        "[0-9]{1,3}",
        "[a-c]/[a-c]",
        "10.0.0.0/[0-9]{1,2}",
        "[a-c*]{1,4}",
        "rate=[0-9.]{1,4}gbit",
        "\\PC{0,5}",
    ];
    let line = prop::collection::vec(word, 0..5).prop_map(|words| words.join(" "));
    prop::collection::vec(line, 0..12).prop_map(|lines| lines.join("\n"))
}

proptest! {
    /// Whatever the text: an error, or places of which a plan can be made.
    #[test]
    fn any_text(text in text()) {
        let yaml = format!("- {text}");
        for map in [Map::from_slurm(&text), Map::from_lab(&text), Map::from_rules(&text), Map::read(&text), Map::read(&yaml)].into_iter().flatten() {
            let hosts = ["a", "b1", "n000", "c"];
            let members = hosts.map(|h| Member { place: map.place(h, "10.1.2.3".parse().ok()), part: Part::Relay });
            let places = map.places().to_vec();
            let epoch = Epoch { number: 0, source: 0, members: members.to_vec(), places, stripes: 2, seed: 0 };
            prop_assert!(Plan::new(&epoch).is_ok());
        }
    }
}
