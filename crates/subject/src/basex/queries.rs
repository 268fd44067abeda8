//! The eight transactions as queries.
//!
//! An updating query reads what is there before it changes anything, and gives out what it has read
//! by `update:output`. Nodes that are inserted are made by computed constructors, whose names and
//! texts are literals.

use tidegate_workload::xmark::{
    AuctionTransaction, AuctionWork, NewBid, NewItem, NewMail, NewPerson, PersonAddress,
    PersonInfo, PersonProfile, Quantile, money,
};

use super::BasexSite;
use crate::embedded_xml::models::{ADDRESS, ContentModel, PERSON, PROFILE};

/// Puts elements with nothing but text among the children of another, and elements that are not
/// there yet: replaces the values of those that are there, and inserts the others in the order of
/// the content model. Those for one place are inserted together, which keeps their order.
const PUT: &str = "
declare function local:at($parent, $order, $new) {
  count($parent/*[index-of($order, name(.)) <= index-of($order, name($new))])
};
declare %updating function local:put($parent, $order, $new) {
  for $n in $new, $old in $parent/*[name(.) = name($n)]
  return replace value of node $old with string($n),
  let $missing := $new[not(name(.) = $parent/*/name(.))]
  for $at in distinct-values($missing ! local:at($parent, $order, .))
  let $group := $missing[local:at($parent, $order, .) = $at]
  return if ($at = 0) then insert nodes $group as first into $parent
         else insert nodes $group after $parent/*[$at]
};
";

/// Returns a string literal.
pub(super) fn literal(text: &str) -> String {
    format!("\"{}\"", text.replace('&', "&amp;").replace('"', "\"\""))
}

/// An element with these parts in it.
fn element(name: &str, parts: &[String]) -> String {
    format!("element {name} {{ {} }}", parts.join(", "))
}

/// An element with nothing but text.
fn leaf(name: &str, text: &str) -> String {
    element(name, &[literal(text)])
}

fn attribute(name: &str, value: &str) -> String {
    format!("attribute {name} {{ {} }}", literal(value))
}

/// An empty element that refers to another.
fn reference(name: &str, to: &str, id: &str) -> String {
    element(name, &[attribute(to, id)])
}

/// The names of a content model as a sequence.
fn order(model: &ContentModel) -> String {
    let names: Vec<String> = model.parts.iter().map(|(name, _)| literal(name)).collect();
    sequence(&names)
}

fn sequence(parts: &[String]) -> String {
    format!("({})", parts.join(", "))
}

/// What is given out: the string-values of a sequence, a line each.
fn output(parts: &str) -> String {
    format!("string-join({parts}, '&#10;')")
}

impl BasexSite {
    /// Returns the query of a transaction.
    pub(super) fn query(&self, transaction: &AuctionTransaction) -> String {
        let entry = self.entry(transaction);
        match &transaction.work {
            AuctionWork::PlaceBid(bid) => self.place_bid(&entry, bid),
            AuctionWork::ReadSellerInfo(_) => self.read_seller_info(&entry),
            AuctionWork::Register(person) => self.register(person),
            AuctionWork::ChangeUserInfo(info) => self.change_user_info(&entry, info),
            AuctionWork::CheckMails => output(&format!("{entry}/mailbox/mail/(from, date, text)")),
            AuctionWork::ReadItem => self.read_item(&entry),
            AuctionWork::AddMail(mail) => add_mail(&entry, mail),
            AuctionWork::AddItem(item) => self.add_item(item),
            AuctionWork::ReadRegion(region) => {
                output(&format!("{}/regions/{region}/item/(location, name)", self.site()))
            }
        }
    }

    /// The node at which a transaction enters. Nothing removes any of these.
    fn entry(&self, transaction: &AuctionTransaction) -> String {
        let Some(list) = transaction.entry_list() else { return String::new() };
        let entries = self.entries(list);
        let quantile = transaction.entry.quantiles().next().expect("places have no end");
        // A document without such nodes has no node of this identifier either.
        let id = entries.get(quantile.index(entries.len())).map_or("-1", String::as_str);
        format!("db:open-id({}, {id})", literal(&self.database))
    }

    /// The element of a name that has an identifier, which is an expression.
    fn by_id(&self, element: &str, id: &str) -> String {
        format!("db:attribute({}, {id}, 'id')/parent::{element}", literal(&self.database))
    }

    fn person(&self, person: Quantile) -> String {
        format!("person{}", person.index(self.persons.len()))
    }

    fn category(&self, category: Quantile) -> String {
        format!("category{}", category.index(self.categories))
    }

    fn site(&self) -> String {
        format!("db:open({})/site", literal(&self.database))
    }

    fn place_bid(&self, entry: &str, bid: &NewBid) -> String {
        let bidder = element(
            "bidder",
            &[
                leaf("date", &bid.date),
                leaf("time", &bid.time),
                reference("personref", "person", &self.person(bid.person)),
                leaf("increase", &money(bid.increase_cents)),
            ],
        );
        let read = output("($current, $last/personref/@person)");
        format!(
            "let $auction := {entry}, $current := $auction/current, \
             $last := $auction/bidder[last()], $bidder := {bidder} \
             return (if ($last) then insert node $bidder after $last \
             else insert node $bidder before $current, \
             replace value of node $current \
             with format-number(xs:decimal($current) + {}, '0.00'), \
             update:output({read}))",
            money(bid.increase_cents)
        )
    }

    fn read_seller_info(&self, entry: &str) -> String {
        let person = self.by_id("person", "$id");
        let read = output("($id, $person/name, $person/emailaddress, $person/address/*)");
        format!("let $id := {entry}/seller/@person/string() let $person := {person} return {read}")
    }

    fn register(&self, person: &NewPerson) -> String {
        let NewPerson { id, name, email, info } = person;
        let mut parts = vec![
            attribute("id", &format!("person{id}")),
            leaf("name", name),
            leaf("emailaddress", email),
        ];
        parts.extend(info.phone.iter().map(|phone| leaf("phone", phone)));
        parts.extend(info.address.iter().map(|address| element("address", &lines_of(address))));
        parts.extend(info.profile.iter().map(|profile| self.profile(profile)));
        let person = element("person", &parts);
        format!("insert node {person} as last into {}/people", self.site())
    }

    fn profile(&self, profile: &PersonProfile) -> String {
        let mut parts = vec![attribute("income", &profile.income)];
        let interest = |category| reference("interest", "category", &self.category(category));
        parts.extend(profile.interests.iter().copied().map(interest));
        parts.extend(leaves_of(profile));
        element("profile", &parts)
    }

    fn change_user_info(&self, entry: &str, info: &PersonInfo) -> String {
        let mut new: Vec<String> = info.phone.iter().map(|phone| leaf("phone", phone)).collect();
        let mut changes = Vec::new();
        let missing = |name: &str, made: String| format!("if ($person/{name}) then () else {made}");
        if let Some(address) = &info.address {
            let lines = lines_of(address);
            new.push(missing("address", element("address", &lines)));
            changes.push(format!(
                "for $address in $person/address return local:put($address, {}, {})",
                order(&ADDRESS),
                sequence(&lines)
            ));
        }
        if let Some(profile) = &info.profile {
            new.push(missing("profile", self.profile(profile)));
            changes.push(format!(
                "for $profile in $person/profile return (replace value of node $profile/@income \
                 with {}, local:put($profile, {}, {}))",
                literal(&profile.income),
                order(&PROFILE),
                sequence(&leaves_of(profile))
            ));
        }
        changes.push(format!("local:put($person, {}, {})", order(&PERSON), sequence(&new)));
        format!("{PUT} let $person := {entry} return {}", sequence(&changes))
    }

    fn read_item(&self, entry: &str) -> String {
        let category = self.by_id("category", "$in/@category");
        let categories = format!("for $in in $item/incategory return {category}/name");
        let read =
            output(&format!("($item/location, $item/name, $item/description, {categories})"));
        format!("let $item := {entry} return {read}")
    }

    fn add_item(&self, item: &NewItem) -> String {
        let (new, auction) = (self.item(item), self.auction(item));
        let site = self.site();
        format!(
            "(insert node {new} as last into {site}/regions/{}, \
             insert node {auction} as last into {site}/open_auctions)",
            item.region
        )
    }

    fn item(&self, item: &NewItem) -> String {
        let mut parts = vec![
            attribute("id", &format!("item{}", item.id)),
            leaf("location", &item.location),
            leaf("quantity", &item.quantity),
            leaf("name", &item.name),
            leaf("payment", item.payment),
            element("description", &[leaf("text", &item.description)]),
            leaf("shipping", item.shipping),
        ];
        let within = |category| reference("incategory", "category", &self.category(category));
        parts.extend(item.categories.iter().copied().map(within));
        parts.push(element("mailbox", &[]));
        element("item", &parts)
    }

    fn auction(&self, item: &NewItem) -> String {
        let auction = &item.auction;
        let initial = money(auction.initial_cents);
        let annotation = [
            reference("author", "person", &self.person(auction.author)),
            leaf("happiness", &auction.happiness),
        ];
        let interval = [leaf("start", &auction.start), leaf("end", &auction.end)];
        element(
            "open_auction",
            &[
                attribute("id", &format!("open_auction{}", item.id)),
                leaf("initial", &initial),
                leaf("current", &initial),
                reference("itemref", "item", &format!("item{}", item.id)),
                reference("seller", "person", &self.person(auction.seller)),
                element("annotation", &annotation),
                leaf("quantity", &item.quantity),
                leaf("type", auction.kind),
                element("interval", &interval),
            ],
        )
    }
}

fn add_mail(entry: &str, mail: &NewMail) -> String {
    let parts = [
        leaf("from", &mail.from),
        leaf("to", &mail.to),
        leaf("date", &mail.date),
        leaf("text", &mail.text),
    ];
    format!("insert node {} as last into {entry}/mailbox", element("mail", &parts))
}

/// The children of an address.
fn lines_of(address: &PersonAddress) -> Vec<String> {
    let PersonAddress { street, city, country, province, zipcode } = address;
    let mut lines = vec![leaf("street", street), leaf("city", city), leaf("country", country)];
    lines.extend(province.iter().map(|province| leaf("province", province)));
    lines.push(leaf("zipcode", zipcode));
    lines
}

/// The children of a profile but the interests.
fn leaves_of(profile: &PersonProfile) -> Vec<String> {
    let PersonProfile { income: _, interests: _, education, gender, business, age } = profile;
    let mut leaves = Vec::new();
    leaves.extend(education.iter().map(|education| leaf("education", education)));
    leaves.extend(gender.iter().map(|gender| leaf("gender", gender)));
    leaves.push(leaf("business", business));
    leaves.extend(age.iter().map(|age| leaf("age", age)));
    leaves
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_cannot_be_left() {
        assert_eq!(literal(r#"a"b & {c}"#), r#""a""b &amp; {c}""#);
        assert_eq!(leaf("name", "<\">"), r#"element name { "<"">" }"#);
    }
}
