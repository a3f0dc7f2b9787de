//! All-reduce over several sites: within a site the path is short and wide, between sites long and narrow.
//!
//! As many parts are made as the smallest site has ranks. In each site a part has an owner, which gets
//! the contributions of its site directly; the owners of a part in all sites reduce it around a ring; then
//! each gives it to its site. So each byte crosses a long path `2 (s - 1) / s` times for `s` sites, whatever
//! the number of ranks, and all owners use the long paths at once. The runner pipelines the three.

use super::ring::{self, Members};
use super::table::{Builder, Part, longest, shares};

/// `sites[i]` is the site of member `i`; sites are numbered from 0 without gaps.
pub(super) fn all_reduce(
    builder: &mut Builder,
    members: Members<'_>,
    sites: &[usize],
    count: usize,
    is_average: bool,
) {
    let site_count = sites.iter().max().map_or(0, |site| site + 1);
    let of = |site: usize| -> Vec<usize> {
        let here = (0..members.count()).filter(|i| sites[*i] == site);
        here.map(|i| members.ranks[i]).collect()
    };
    let all: Vec<Vec<usize>> = (0..site_count).map(of).collect();
    let owners = all.iter().map(Vec::len).min().unwrap_or(1);
    let busiest = all.iter().map(Vec::len).max().unwrap_or(1);
    let offsets = shares(count, owners);
    let range = |i: usize| offsets[i]..offsets[i + 1];
    let site = &all[sites[members.me]];
    let rank = members.ranks[members.me];
    let me = site.iter().position(|r| *r == rank).expect("a rank is in its site");

    // Within the site, to the owners.
    if busiest > 1 {
        builder.phase((busiest - 1) * longest(&offsets));
    }
    for owner in (1..=site.len()).map(|turn| (me + turn) % site.len()) {
        if owner != me && owner < owners {
            builder.send(site[owner], Part::input(range(owner)));
        }
    }
    let mut mine = None;
    if me < owners {
        let mut here = Part::input(range(me));
        for turn in 1..site.len() {
            let other = (me + site.len() - turn) % site.len();
            builder.receive(site[other], Part::output(range(me)), Some(here));
            here = Part::output(range(me));
        }
        mine = Some(here);
    }

    let longest_inner = longest(&shares(longest(&offsets), site_count));
    // Between the sites, among the owners of a part.
    let part = me.min(owners - 1);
    let column: Vec<usize> = all.iter().map(|site| site[part]).collect();
    let inner = shares(range(part).len(), site_count);
    let at = offsets[part];
    if let Some(here) = mine {
        let place = |space: fn(std::ops::Range<usize>) -> Part| {
            move |range: std::ops::Range<usize>| space(range.start + at..range.end + at)
        };
        let result = place(Part::output);
        let own = place(if here == Part::output(range(me)) { Part::output } else { Part::input });
        if site_count > 1 {
            let ring = Members { ranks: &column, me: sites[members.me] };
            let before = builder.table.phases.len();
            ring::all_reduce(builder, ring, &inner, &own, &result, is_average);
            // The same on all ranks, though the parts of some owners are shorter.
            builder.table.phases[before..].fill(longest_inner as u64);
        } else if is_average {
            builder.divide(result(0..range(me).len()));
        }
    } else {
        (1..site_count).chain(1..site_count).for_each(|_| builder.phase(longest_inner));
    }

    // Within the site, from the owners.
    if busiest > 1 {
        builder.phase(count - offsets.windows(2).map(|pair| pair[1] - pair[0]).min().unwrap_or(0));
    }
    if me < owners {
        for other in (1..site.len()).map(|turn| (me + turn) % site.len()) {
            builder.send(site[other], Part::output(range(me)));
        }
    }
    for owner in (1..site.len()).map(|turn| (me + site.len() - turn) % site.len()) {
        if owner < owners {
            builder.receive(site[owner], Part::output(range(owner)), None);
        }
    }
}
