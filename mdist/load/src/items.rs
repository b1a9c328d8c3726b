//! Items, and the distribution of items to mounts.

use std::path::Path;

use anyhow::{Context, Result, bail};
use rssl::rwf::Domain;

/// One item of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Name, a RIC.
    pub name: String,
    /// Domain of its data.
    pub domain: Domain,
    /// Whether consumers post to it.
    pub post: bool,
    /// Whether consumers send it generic messages, on a private stream.
    pub generic: bool,
    /// Whether it is requested as a snapshot, without updates.
    pub snapshot: bool,
}

impl Item {
    /// A streaming MarketPrice item.
    #[must_use]
    pub fn price(name: impl Into<String>) -> Self {
        Self { name: name.into(), domain: Domain::MARKET_PRICE, post: false, generic: false, snapshot: false }
    }
}

/// `RDT0`, `RDT1` and so on: the items of the load tools without a list.
#[must_use]
pub fn generated(count: usize) -> Vec<Item> {
    (0..count).map(|number| Item::price(format!("RDT{number}"))).collect()
}

/// Reads an item list: `itemList` of `item domain= name= [post= generic= snapshot=]`.
///
/// Spec: rssl.md §9.2
///
/// # Errors
/// The file cannot be read or is not an item list; the error has the line.
pub fn read(path: &Path) -> Result<Vec<Item>> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("read the item list {}", path.display()))?;
    parse(&text).with_context(|| format!("in the item list {}", path.display()))
}

/// Parses an item list: see [`read`].
///
/// # Errors
/// As [`read`].
pub fn parse(text: &str) -> Result<Vec<Item>> {
    parse_with(text, &|document, offset| document.text_pos_at(offset).row)
}

/// Parses an item list; `line_of` computes the line of a byte offset. It scans the text from the beginning, so it is
/// called for errors only.
fn parse_with(text: &str, line_of: &dyn Fn(&roxmltree::Document<'_>, usize) -> u32) -> Result<Vec<Item>> {
    let document = roxmltree::Document::parse(text)?;
    let root = document.root_element();
    if !root.has_tag_name("itemList") {
        bail!("the root is <{}>, not <itemList>", root.tag_name().name());
    }
    let nodes = root.children().filter(roxmltree::Node::is_element);
    nodes.map(|node| item(node, &|| line_of(&document, node.range().start))).collect()
}

fn item(node: roxmltree::Node<'_, '_>, line: &dyn Fn() -> u32) -> Result<Item> {
    if !node.has_tag_name("item") {
        bail!("line {}: <{}> is not an item", line(), node.tag_name().name());
    }
    let name = node.attribute("name").with_context(|| format!("line {}: an item has no name", line()))?;
    let domain = match node.attribute("domain") {
        None | Some("MarketPrice") => Domain::MARKET_PRICE,
        Some("MarketByOrder") => Domain::MARKET_BY_ORDER,
        Some(other) => bail!("line {}: unknown domain '{other}' (use MarketPrice or MarketByOrder)", line()),
    };
    let yes = |attribute| matches!(node.attribute(attribute), Some("true" | "1"));
    Ok(Item {
        name: name.to_owned(),
        domain,
        post: yes("post"),
        // The vendor's guide and the vendor's program use different names.
        generic: yes("generic") || yes("genMsg"),
        snapshot: yes("snapshot"),
    })
}

/// Distribution of a list to mounts: all mounts have the first items, and each mount has a range of its own of the
/// others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares {
    mounts: usize,
    common: usize,
    /// Number of own items of all mounts together.
    own: usize,
}

impl Shares {
    /// The distribution of the vendor's performance consumer: `items` is the sum over all mounts, `common` the number
    /// of items that all mounts share.
    ///
    /// # Errors
    /// A mount would have fewer than `common` items.
    pub fn split(mounts: usize, items: usize, common: usize) -> Result<Self> {
        let Some(own) = mounts.checked_mul(common).and_then(|shared| items.checked_sub(shared)) else {
            bail!(
                "{items} items are fewer than {common} common items for each of {mounts} mounts; use more items"
            );
        };
        Ok(Self { mounts, common, own })
    }

    /// One mount that requests everything.
    #[must_use]
    pub fn one(items: usize) -> Self {
        Self { mounts: 1, common: 0, own: items }
    }

    /// "Producer 50/50": half of the publisher's updates reach all mounts, half reach one mount. A publisher updates
    /// its items in turn, so there are as many common items as own items of all mounts together.
    #[must_use]
    pub fn half(mounts: usize, own_per_mount: usize) -> Self {
        Self { mounts, common: mounts * own_per_mount, own: mounts * own_per_mount }
    }

    /// Number of different items.
    #[must_use]
    pub fn distinct(&self) -> usize {
        self.common + self.own
    }

    /// Number of item streams of all mounts together.
    #[must_use]
    pub fn streams(&self) -> usize {
        self.mounts * self.common + self.own
    }

    /// Output updates for each input update if the publisher updates items in turn.
    #[must_use]
    pub fn fan_out(&self) -> f64 {
        if self.distinct() == 0 { 0.0 } else { self.streams() as f64 / self.distinct() as f64 }
    }

    /// Places in the list that `mount` requests.
    pub fn of(&self, mount: usize) -> impl Iterator<Item = usize> + use<> {
        let (each, rest) = match self.mounts {
            0 => (0, 0),
            mounts => (self.own / mounts, self.own % mounts),
        };
        let first = self.common + mount * each + mount.min(rest);
        let count = each + usize::from(mount < rest);
        (0..self.common).chain(first..first + count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn item_lists_are_parsed() {
        let list = parse(
            "<itemList>\n<!-- two -->\n<item domain=\"MarketPrice\" name=\"RDT0\" post=\"true\" genMsg=\"true\"/>\n\
             <item domain=\"MarketByOrder\" name=\"RDT1\" snapshot=\"true\"/></itemList>",
        )
        .unwrap();
        assert_eq!(list[0], Item { post: true, generic: true, ..Item::price("RDT0") });
        assert!(list[1].domain == Domain::MARKET_BY_ORDER && list[1].snapshot);
        assert_eq!(generated(3)[2], Item::price("RDT2"));
    }

    #[test]
    fn line_numbers_are_computed_for_errors_only() {
        let mut text = String::from("<itemList>\n");
        for number in 0..350_000 {
            text.push_str(&format!("<item domain=\"MarketPrice\" name=\"RDT{number}\"/>\n"));
        }
        let computed = std::cell::Cell::new(0);
        let parse_counted = |text: &str| {
            parse_with(text, &|document, offset| {
                computed.set(computed.get() + 1);
                document.text_pos_at(offset).row
            })
        };
        let list = parse_counted(&format!("{text}</itemList>")).unwrap();
        assert_eq!((list.len(), computed.get()), (350_000, 0), "each computed line scans the text");
        assert_eq!(list[349_999], Item::price("RDT349999"));

        let why = parse_counted(&format!("{text}<item/></itemList>")).unwrap_err().to_string();
        assert_eq!((why.as_str(), computed.get()), ("line 350002: an item has no name", 1));
    }

    #[test]
    fn errors_name_the_line() {
        for (text, want) in [
            ("<items/>", "<items>"),
            ("<itemList>\n<item domain=\"MarketPrice\"/></itemList>", "line 2"),
            ("<itemList><item name=\"A\" domain=\"Login\"/></itemList>", "'Login'"),
            ("<itemList>", "root"),
        ] {
            let why = format!("{:#}", parse(text).unwrap_err());
            assert!(why.contains(want), "{text}: {why}");
        }
    }

    #[test]
    fn shares_overlap_in_common_items_only() {
        let shares = Shares::split(3, 20, 4).unwrap();
        let all: Vec<Vec<usize>> = (0..3).map(|mount| shares.of(mount).collect()).collect();
        assert_eq!(all.iter().map(Vec::len).collect::<Vec<_>>(), [7, 7, 6]);
        assert_eq!((shares.distinct(), shares.streams()), (12, 20));
        let mut own: Vec<usize> = all.iter().flat_map(|m| m[4..].to_vec()).collect();
        own.dedup();
        assert_eq!(own, (4..12).collect::<Vec<_>>());
        assert!(Shares::split(3, 8, 4).is_err());
    }

    #[test]
    fn half_shares_give_the_fan_out_of_the_report() {
        let shares = Shares::half(100, 100);
        assert_eq!((shares.distinct(), shares.of(7).count()), (20_000, 10_100));
        assert!((shares.fan_out() - 50.5).abs() < 1e-9);
        assert!((70_000.0 * shares.fan_out() - 3_535_000.0).abs() < 1e-3);
    }
}
