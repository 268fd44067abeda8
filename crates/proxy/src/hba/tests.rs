//! Every form of a line, every error, and drawn lines against a model.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};

use tidegate_control::SplitMix64;

use super::ClientCertificate::{NotNeeded, OfUser, Verified};
use super::*;

fn parse(hba: &str, ident: Option<&str>) -> Result<Rules, HbaError> {
    let ident = ident.map(|text| (text, Path::new("ident")));
    Rules::parse((hba, Path::new("hba")), ident, true)
}

fn rules(hba: &str) -> Rules {
    parse(hba, Some("")).unwrap_or_else(|error| panic!("{error}\n{hba}"))
}

fn request<'a>(peer: &str, user: &'a str, database: &'a str) -> Request<'a> {
    let peer = (peer != "local").then(|| peer.parse().unwrap());
    Request { peer, is_encrypted: false, user, database, is_replication: false }
}

/// The line that lets this connection in.
fn line(rules: &Rules, peer: &str, user: &str, database: &str) -> Option<usize> {
    rules.first(&request(peer, user, database)).map(|rule| rule.line)
}

#[test]
fn the_first_line_that_fits_decides() {
    let rules = rules(
        "# comment\n\
         local all all trust # another\n\
         host shop ann 10.0.0.0/8 reject\n\
         host shop,till ann,bob 10.0.0.0 255.255.0.0 md5\n\
         host sameuser all ::1/128 scram-sha-256\n\
         host \"all\",\"a b\"\"c\" \"/^x\\d+$\",/y,\"z\" \\\n  all trust\n\
         hostnossl all,replication last 0.0.0.0/0 trust\n",
    );
    for (peer, user, database, expected) in [
        ("local", "anybody", "anything", Some(2)),
        ("10.1.2.3", "ann", "shop", Some(3)),
        ("10.0.2.3", "ann", "till", Some(4)),
        ("10.1.2.3", "ann", "till", None),
        ("11.0.0.1", "bob", "till", None),
        ("::1", "ann", "ann", Some(5)),
        ("::1", "ann", "bob", None),
        ("::2", "ann", "ann", None),
        ("::2", "x12", "all", Some(6)),
        ("1.2.3.4", "joy", "a b\"c", Some(6)),
        ("1.2.3.4", "x12a", "all", None),
        ("1.2.3.4", "z", "all", Some(6)),
        ("1.2.3.4", "z", "other", None),
        ("1.2.3.4", "last", "other", Some(8)),
    ] {
        assert_eq!(line(&rules, peer, user, database), expected, "{peer} {user} {database}");
    }
    let encrypted = Request { is_encrypted: true, ..request("1.2.3.4", "last", "other") };
    assert!(rules.first(&encrypted).is_none());
    let replication = Request { is_replication: true, ..request("1.2.3.4", "last", "all") };
    assert_eq!(rules.first(&replication).map(|rule| rule.line), Some(8));
    let replication = Request { is_replication: true, ..request("::2", "z", "all") };
    assert!(rules.first(&replication).is_none(), "a database's name is no replication");
}

#[test]
fn methods_and_options_are_read() {
    let rules = rules(
        "hostssl all a all cert map=\"of cn\"\n\
         hostssl all b all scram-sha-256 clientcert=verify-ca clientname=CN\n\
         hostssl all c all trust clientcert=verify-full\n\
         local all d peer map=staff\n\
         local all e ident\n\
         hostnogssenc all f all md5\n",
    );
    let found: Vec<_> = rules
        .rules
        .iter()
        .map(|rule| (rule.method, rule.certificate, rule.map.as_deref()))
        .collect();
    let scram = Method::Password(PasswordMethod::ScramSha256);
    let expected = [
        (Method::Certificate, OfUser, Some("of cn")),
        (scram, Verified, None),
        (Method::Trust, OfUser, None),
        (Method::Peer, NotNeeded, Some("staff")),
        (Method::Peer, NotNeeded, None),
        (Method::Password(PasswordMethod::Md5), NotNeeded, None),
    ];
    assert_eq!(found, expected);
    assert_eq!(rules.first_with_password().map(|rule| rule.line), Some(2));
}

#[test]
fn what_is_wrong_is_said_with_its_line() {
    for (text, wrong) in [
        ("", "has no entries"),
        ("# nothing", "has no entries"),
        ("\n\nlocal all", "line 3: the user is missing"),
        ("local all all", "the method is missing"),
        ("host all all", "the address is missing"),
        ("host all all all", "the method is missing"),
        ("host all all 10.0.0.1 md5", "\"md5\" is no mask"),
        ("host all all 10.0.0.1 ffff:: md5", "is no mask"),
        ("host all all 10.0.0.0/33 md5", "is no address"),
        ("host all all 10.0.0.0/ md5", "is no address"),
        ("host all all 10.0.0.0/+8 md5", "is no address"),
        ("host all all ::/129 md5", "is no address"),
        ("host all all 10.0.0/8 md5", "is no address"),
        ("host all all db.example.org md5", "host name \"db.example.org\" is not supported"),
        ("host all all .example.org md5", "host name"),
        ("host all all samenet md5", "samenet is not supported"),
        ("host all all samehost md5", "samehost is not supported"),
        ("host all all 1.2.3.4/8,1.2.3.5/8 md5", "the address is one value"),
        ("host,local all all all md5", "the connection type is one value"),
        ("host all +staff all md5", "+staff is not supported: the proxy knows no groups"),
        ("host samerole all all md5", "samerole is not supported"),
        ("host @dbs all all md5", "@dbs is not supported"),
        ("include other.conf", "include is not supported"),
        ("Host all all all md5", "\"Host\" is no connection type"),
        ("hostgssenc all all all gss", "hostgssenc is not supported"),
        ("host all all all password", "clear text"),
        ("host all all all ldap", "ldap is not supported"),
        ("host all all all magic", "\"magic\" is no method"),
        ("host all all all peer", "peer is only possible on lines of type local"),
        ("host all all all cert", "cert is only possible on lines of type hostssl"),
        ("host all all all md5 clientcert=verify-ca", "option clientcert"),
        ("hostssl all all all md5 clientcert=1", "is no value of option clientcert"),
        ("hostssl all all all cert clientcert=verify-ca", "cert demands verify-full"),
        ("hostssl all all all cert clientname=DN", "clientname=DN is not supported"),
        ("local all all md5 map=x", "option map is not one of"),
        ("local all all peer map", "no option of the form name=value"),
        ("local all /( md5", "the regular expression \"(\" is wrong"),
        ("local all \"ann md5", "a double quote is not closed"),
    ] {
        let error = parse(text, Some("")).unwrap_err().to_string();
        assert!(error.starts_with("hba") && error.contains(wrong), "{text:?}: {error}");
    }
    let error = parse("local all all peer map=x", None).unwrap_err().to_string();
    assert_eq!(error, "hba, line 1: map=x needs auth_ident_file, the file with the map");
    let cert = ("hostssl all all all cert", Path::new("hba"));
    let error = Rules::parse(cert, None, false).unwrap_err().to_string();
    assert!(error.contains("client_tls.ca"), "{error}");
    for (text, wrong) in [
        ("m a", "ident, line 1: the user of the database is missing"),
        ("m a b c", "\"c\" follows"),
        ("m a,b c", "is one value"),
        ("m a +c", "+c is not supported"),
        ("m /a \\1", "has no parentheses"),
        ("m /( b", "the regular expression"),
    ] {
        let error = parse("local all all trust", Some(text)).unwrap_err().to_string();
        assert!(error.contains(wrong), "{text:?}: {error}");
    }
}

#[test]
fn a_map_says_who_may_be_whom() {
    let ident = "# map\n\
                 m  root        postgres\n\
                 m  /^(.*)@x$   \\1\n\
                 m  /^(.*)@x$   \"shared \\1\"\n\
                 m  boss        all\n\
                 m  ops         /^app_\n\
                 n  \"all\"     ann\n\
                 o  /^(a)|b$    \\1\n";
    let rules = parse("local all all trust", Some(ident)).unwrap();
    for (map, system_user, user, expected) in [
        (None, "ann", "ann", true),
        (None, "ann", "bob", false),
        (Some("m"), "root", "postgres", true),
        (Some("m"), "root", "root", false),
        (Some("m"), "postgres", "postgres", false),
        (Some("m"), "ann@x", "ann", true),
        (Some("m"), "ann@x", "shared ann", true),
        (Some("m"), "ann@x", "bob", false),
        (Some("m"), "ann@y", "ann", false),
        (Some("m"), "boss", "anybody", true),
        (Some("m"), "ops", "app_1", true),
        (Some("m"), "ops", "other", false),
        (Some("n"), "ann", "ann", false),
        (Some("n"), "all", "ann", true),
        (Some("o"), "a", "a", true),
        (Some("o"), "b", "b", false),
        (Some("o"), "b", "", false),
        (Some("none"), "ann", "ann", false),
    ] {
        let may = rules.may_be(map, system_user, user);
        assert_eq!(may, expected, "{map:?} {system_user} {user}");
    }
}

#[test]
fn a_refusal_is_in_postgresqls_words() {
    let tcp = Request { is_encrypted: true, ..request("10.0.0.1", "ann", "shop") };
    let text = "host \"10.0.0.1\", user \"ann\", database \"shop\", SSL encryption";
    assert_eq!(tcp.to_string(), text);
    let local = Request { is_replication: true, ..request("local", "ann", "shop") };
    let text = "replication connection from host \"[local]\", user \"ann\", no encryption";
    assert_eq!(local.to_string(), text);
}

/// A line as it was drawn, to be matched without having been read.
struct Drawn {
    connection: &'static str,
    databases: Vec<&'static str>,
    users: Vec<&'static str>,
    /// An address and the number of bits that count.
    network: Option<(IpAddr, u32)>,
    method: &'static str,
}

/// Names as they are written, with what they mean in the model: see [`name_fits`].
const NAMES: [&str; 10] = [
    "all",
    "ann",
    "bob",
    "\"all\"",
    "\"a b\"",
    "\"q\"\"q\"",
    "/^a",
    "/b$",
    "\"/^a,b$\"",
    "sameuser",
];

/// Texts that are compared with them.
const TEXTS: [&str; 9] = ["all", "ann", "bob", "a b", "q\"q", "axb", "sameuser", "a,b", ""];

fn pick<T: Copy>(draws: &mut SplitMix64, from: &[T]) -> T {
    from[usize::try_from(draws.next_bits() % from.len() as u64).unwrap()]
}

fn address(draws: &mut SplitMix64) -> IpAddr {
    // Few bits differ, so that networks contain addresses now and then.
    let bits = draws.next_bits() & 0x0303_0303;
    if draws.next_bits().is_multiple_of(2) {
        Ipv4Addr::from(u32::try_from(bits & 0xffff_ffff).unwrap()).into()
    } else {
        Ipv6Addr::from(u128::from(bits) << 96 | u128::from(draws.next_bits() & 3)).into()
    }
}

impl Drawn {
    fn new(draws: &mut SplitMix64) -> Drawn {
        let connection = pick(draws, &["local", "host", "hostssl", "hostnossl"]);
        let mut names = |all: &[&'static str]| -> Vec<&'static str> {
            (0..=draws.next_bits() % 3).map(|_| pick(draws, all)).collect()
        };
        let (databases, users) = (names(&NAMES), names(&NAMES[..9]));
        let network = (connection != "local" && !draws.next_bits().is_multiple_of(8)).then(|| {
            let address = address(draws);
            let most = if address.is_ipv4() { 33 } else { 129 };
            (address, u32::try_from(draws.next_bits() % most).unwrap())
        });
        let method = pick(draws, &["trust", "reject", "md5", "scram-sha-256"]);
        Drawn { connection, databases, users, network, method }
    }

    fn write(&self, draws: &mut SplitMix64, out: &mut String) {
        let mut blank = || pick(draws, &[" ", "\t", "   ", " \\\n "]);
        let mut fields = vec![self.connection.to_owned()];
        fields.extend([self.databases.join(","), self.users.join(", ")]);
        match self.network {
            None if self.connection == "local" => {}
            None => fields.push("all".to_owned()),
            Some((IpAddr::V4(address), bits)) if bits % 2 == 0 => {
                let mask: String = (0..32).map(|bit| if bit < bits { '1' } else { '0' }).collect();
                let mask = Ipv4Addr::from(u32::from_str_radix(&mask, 2).unwrap());
                fields.push(format!("{address} {mask}"));
            }
            Some((address, bits)) => fields.push(format!("{address}/{bits}")),
        }
        fields.push(self.method.to_owned());
        for field in fields {
            write!(out, "{}{field}", blank()).unwrap();
        }
        out.push_str(pick(draws, &["\n", " # all\n", "\n\n", "\n# host all all all trust\n"]));
    }

    fn fits(&self, request: &Request<'_>) -> bool {
        let comes_so = match (self.connection, request.peer) {
            ("local", peer) => peer.is_none(),
            (_, None) => false,
            ("hostssl", _) if !request.is_encrypted => false,
            ("hostnossl", _) if request.is_encrypted => false,
            (_, Some(peer)) => self.network.is_none_or(|(address, bits)| {
                address.is_ipv4() == peer.is_ipv4()
                    && bits_of(address)[..bits as usize] == bits_of(peer)[..bits as usize]
            }),
        };
        let database = |name: &&str| match *name {
            "sameuser" => request.database == request.user,
            name => name_fits(name, request.database),
        };
        comes_so
            && self.databases.iter().any(database)
            && self.users.iter().any(|name| name_fits(name, request.user))
    }
}

fn bits_of(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => format!("{:032b}", address.to_bits()),
        IpAddr::V6(address) => format!("{:0128b}", address.to_bits()),
    }
}

fn name_fits(name: &str, text: &str) -> bool {
    match name {
        "all" => true,
        "\"all\"" => text == "all",
        "\"a b\"" => text == "a b",
        "\"q\"\"q\"" => text == "q\"q",
        "/^a" => text.starts_with('a'),
        "/b$" => text.ends_with('b'),
        "\"/^a,b$\"" => text == "a,b",
        literal => text == literal,
    }
}

#[test]
fn drawn_lines_are_matched_as_a_model_says() {
    let first = std::env::var("TIDEGATE_HBA_SEED").ok().and_then(|text| text.parse().ok());
    let first: u64 = first.unwrap_or(20_261_123);
    println!("seeds from {first}; TIDEGATE_HBA_SEED=SEED begins elsewhere");
    let mut found = 0;
    for seed in first..first + 2_000 {
        let mut draws = SplitMix64::new(seed);
        let lines: Vec<Drawn> =
            (0..=draws.next_bits() % 6).map(|_| Drawn::new(&mut draws)).collect();
        let mut text = String::new();
        for line in &lines {
            line.write(&mut draws, &mut text);
        }
        let parsed =
            parse(&text, None).unwrap_or_else(|error| panic!("seed {seed}: {error}\n{text}"));
        assert_eq!(parsed.rules.len(), lines.len(), "seed {seed}\n{text}");
        for _ in 0..20 {
            let peer = (!draws.next_bits().is_multiple_of(4)).then(|| address(&mut draws));
            let is_encrypted = draws.next_bits().is_multiple_of(2);
            let (user, database) = (pick(&mut draws, &TEXTS), pick(&mut draws, &TEXTS));
            let request = Request { peer, is_encrypted, user, database, is_replication: false };
            let expected = lines.iter().position(|line| line.fits(&request));
            let rule = parsed.first(&request);
            let index = rule
                .map(|rule| parsed.rules.iter().position(|other| other.line == rule.line).unwrap());
            assert_eq!(index, expected, "seed {seed}: {request}\n{text}");
            found += usize::from(expected.is_some());
        }
    }
    assert!(found > 1_000, "only {found} connections had a line");
}

#[test]
fn no_text_makes_the_parser_panic() {
    const PIECES: &[&str] = &[
        "local",
        "host",
        "hostssl",
        " ",
        "\t",
        ",",
        "\"",
        "\\",
        "\n",
        "#",
        "@",
        "/",
        "/(",
        "+",
        "all",
        "10.0.0.0/8",
        "::/0",
        "255.0.0.0",
        "md5",
        "cert",
        "peer",
        "map=",
        "clientcert=verify-ca",
        "=",
        "é",
        "\0",
        "\r",
        "\\1",
        "include",
        "*",
        "[",
        "a",
        "{99999}",
        "((((",
        "|",
    ];
    let first = std::env::var("TIDEGATE_HBA_SEED").ok().and_then(|text| text.parse().ok());
    let first: u64 = first.unwrap_or(7);
    println!("seeds from {first}");
    for seed in first..first + 20_000 {
        let mut draws = SplitMix64::new(seed);
        let mut text = || -> String {
            (0..draws.next_bits() % 24).map(|_| pick(&mut draws, PIECES)).collect()
        };
        let (hba, ident) = (text(), text());
        if let Ok(rules) = parse(&hba, Some(&ident)) {
            let request = request("10.1.1.1", "a", "all");
            rules.first(&request);
            rules.may_be(Some("a"), "a", "all");
        }
    }
}
