//! Assignment of shards to nodes. Every node computes it for itself: the same view gives the same
//! assignment, so no coordination is needed. With different views two nodes may claim the same
//! shard; the store gives it to one of them.

use std::collections::{BTreeMap, BTreeSet};

use onward_base::SharedText;
use onward_store::ShardId;

/// Computes the owner of each shard from the live members and the current holders. The numbers of
/// shards of two members differ by at most one, and no more shards move than that requires.
pub(super) fn assign_shards(
    members: &BTreeSet<SharedText>,
    held: &BTreeMap<ShardId, Option<SharedText>>,
) -> BTreeMap<ShardId, SharedText> {
    let mut shares: BTreeMap<&SharedText, Vec<ShardId>> =
        members.iter().map(|member| (member, Vec::new())).collect();
    let mut free = BTreeSet::new();
    for (shard, holder) in held {
        match holder.as_ref().and_then(|holder| shares.get_mut(holder)) {
            Some(share) => share.push(*shard),
            None => drop(free.insert(*shard)),
        }
    }
    let mut shares: Vec<(&SharedText, Vec<ShardId>)> = shares.into_iter().collect();
    // If the shards cannot be divided evenly, the members that already have one more keep it. The
    // assignment therefore stays the same, whichever member releases or takes a shard first.
    shares.sort_by_key(|(_, share)| share.len() <= held.len() / members.len());
    let sizes = share_sizes(held.len(), members.len());
    for ((_, share), size) in shares.iter_mut().zip(sizes.clone()) {
        free.extend(share.drain(size.min(share.len())..));
    }
    for ((_, share), size) in shares.iter_mut().zip(sizes) {
        let missing = size - share.len();
        share.extend((0..missing).filter_map(|_| free.pop_first()));
    }
    shares
        .into_iter()
        .flat_map(|(member, share)| share.into_iter().map(|shard| (shard, member.clone())))
        .collect()
}

/// Number of shards per member, largest first.
fn share_sizes(shards: usize, members: usize) -> impl Iterator<Item = usize> + Clone {
    (0..members).map(move |place| shards / members + usize::from(place < shards % members))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(number: usize) -> SharedText {
        format!("node {number}").into()
    }

    /// All ways in which `shards` shards can be held by `members` members, by a dead node, or by no
    /// node.
    fn ways(
        shards: u32,
        members: usize,
    ) -> impl Iterator<Item = BTreeMap<ShardId, Option<SharedText>>> {
        let holders = members + 2;
        (0..holders.pow(shards)).map(move |way| {
            let holder = |shard: u32| way / holders.pow(shard) % holders;
            let held = |shard| Some(holder(shard)).filter(|holder| *holder > 0).map(name);
            (0..shards)
                .map(|shard| (ShardId(shard), held(shard)))
                .collect()
        })
    }

    /// Calls `check` with every view of up to five shards and five members.
    fn everywhere(check: impl Fn(&BTreeSet<SharedText>, &BTreeMap<ShardId, Option<SharedText>>)) {
        for (shards, members) in
            (0..=5).flat_map(|shards| (1..=5).map(move |members| (shards, members)))
        {
            let present: BTreeSet<SharedText> = (1..=members).map(name).collect();
            ways(shards, members).for_each(|held| check(&present, &held));
        }
    }

    fn counts(members: &BTreeSet<SharedText>, owned: &BTreeMap<ShardId, SharedText>) -> Vec<usize> {
        members
            .iter()
            .map(|member| owned.values().filter(|owner| *owner == member).count())
            .collect()
    }

    /// Number of shards that members would have to release if the members in the bit set `larger`
    /// have one more than the others.
    fn moves(
        members: &BTreeSet<SharedText>,
        held: &BTreeMap<ShardId, Option<SharedText>>,
        larger: u32,
    ) -> usize {
        let least = held.len() / members.len();
        let given_up = members.iter().enumerate().map(|(place, member)| {
            let count = held
                .values()
                .flatten()
                .filter(|holder| *holder == member)
                .count();
            count.saturating_sub(least + usize::from(larger & (1 << place) != 0))
        });
        given_up.sum()
    }

    #[test]
    fn every_shard_has_one_owner_and_counts_differ_by_one_at_most() {
        everywhere(|members, held| {
            let owned = assign_shards(members, held);
            assert!(owned.keys().eq(held.keys()), "{held:?}");
            assert!(
                owned.values().all(|owner| members.contains(owner)),
                "{held:?}"
            );
            let counts = counts(members, &owned);
            assert!(
                counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1,
                "{held:?}: {counts:?}"
            );
        });
    }

    #[test]
    fn no_other_balance_takes_fewer_moves() {
        everywhere(|members, held| {
            let owned = assign_shards(members, held);
            let is_moved = |shard: &ShardId, holder: &SharedText| {
                members.contains(holder) && owned[shard] != *holder
            };
            let moved = held
                .iter()
                .filter(|(shard, holder)| holder.as_ref().is_some_and(|it| is_moved(shard, it)));
            let larger = (0..1_u32 << members.len())
                .filter(|it| it.count_ones() as usize == held.len() % members.len());
            let fewest = larger.map(|larger| moves(members, held, larger)).min();
            assert_eq!(Some(moved.count()), fewest, "{held:?}");
        });
    }

    #[test]
    fn what_is_balanced_stays_as_it_is() {
        everywhere(|members, held| {
            let owned = assign_shards(members, held);
            let again: BTreeMap<ShardId, Option<SharedText>> = owned
                .iter()
                .map(|(shard, owner)| (*shard, Some(owner.clone())))
                .collect();
            assert_eq!(assign_shards(members, &again), owned, "{held:?}");
        });
    }

    #[test]
    fn an_owner_keeps_its_shard_in_any_order_of_moves() {
        everywhere(|members, held| {
            let owned = assign_shards(members, held);
            for (shard, owner) in &owned {
                let mut later = held.clone();
                later.insert(*shard, Some(owner.clone()));
                let next = assign_shards(members, &later);
                let is_kept = |(shard, holder): (&ShardId, &Option<SharedText>)| {
                    holder
                        .as_ref()
                        .is_none_or(|holder| owned[shard] != *holder || next[shard] == *holder)
                };
                assert!(held.iter().all(is_kept), "{held:?}, then {shard}");
            }
        });
    }

    #[test]
    fn more_nodes_than_shards_leaves_some_without() {
        let members: BTreeSet<SharedText> = (0..20).map(name).collect();
        let held = (0..8).map(|shard| (ShardId(shard), None)).collect();
        let counts = counts(&members, &assign_shards(&members, &held));
        assert_eq!(
            (counts.iter().sum::<usize>(), counts.iter().max()),
            (8, Some(&1))
        );
    }
}
