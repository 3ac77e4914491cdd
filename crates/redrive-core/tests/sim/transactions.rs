//! Members that publish and commit in one transaction, every now and then.

use std::collections::BTreeMap;
use std::rc::Rc;

use redrive_core::lane::Marker;

use super::order::StateRecord;
use super::{Commit, EPOCH, Event, Hops, Token, World};
use crate::cluster::Partition;

/// What a member has published and not committed yet.
#[derive(Debug, Default)]
pub(super) struct Transaction {
    number: u64,
    hops: Vec<Hop>,
    /// Where it begins in each log.
    begins: BTreeMap<Partition, i64>,
    /// Markers of the state topic.
    markers: Vec<(usize, Marker)>,
    end: End,
}

/// Where a transaction is with its end.
#[derive(Debug, Default)]
enum End {
    #[default]
    Open,
    /// Some of its lanes still have to say what they commit.
    Closing { awaited: Vec<Token>, commits: Vec<Commit> },
}

/// A record's hop.
#[derive(Debug)]
pub(super) struct Hop {
    token: Token,
    offset: i64,
    id: u64,
    out: Hops,
    /// Where it was appended.
    appended: i64,
}

/// A hop that comes while a transaction ends is part of the next.
pub(super) type Queued = (Token, i64, u64, Hops);

impl World {
    fn transaction(&mut self, member: usize) -> &mut Transaction {
        if self.members[member].transaction.is_none() {
            self.transactions += 1;
            let number = self.transactions;
            let length = self.rng.range(1, 150);
            self.after(length, Event::CloseTransaction { member, number });
            self.members[member].transaction =
                Some(Transaction { number, ..Transaction::default() });
        }
        self.members[member].transaction.get_or_insert_default()
    }

    pub(super) fn publish_in_transaction(&mut self, queued: Queued) {
        let (token, offset, id, out) = queued;
        let transaction = self.transaction(token.member);
        if !matches!(transaction.end, End::Open) {
            self.members[token.member].queued.push((token, offset, id, out));
            return;
        }
        let number = transaction.hops.len();
        let hop = Hop { token, offset, id, out: Rc::clone(&out), appended: 0 };
        transaction.hops.push(hop);
        if let Some(at) = out.to {
            let now = self.time + EPOCH;
            let appended = self.cluster.append(at, id, out.headers.clone(), now, &mut self.rng);
            let transaction = self.transaction(token.member);
            transaction.hops[number].appended = appended;
            let first = *transaction.begins.entry(at).or_insert(appended);
            let log = self.cluster.logs.entry(at).or_default();
            log.open.entry(first).or_default().push(appended);
        }
    }

    /// The lane as a whole, whichever part of it is meant.
    pub(super) fn whole(&self, token: Token) -> Token {
        Token { at: self.home(token.at), ..token }
    }

    /// A marker is part of the transaction that its dead letter is in.
    pub(super) fn mark_in_transaction(&mut self, token: Token, marker: Marker) {
        let transaction = self.transaction(token.member);
        if matches!(transaction.end, End::Open) {
            transaction.markers.push((token.at.1, marker));
        } else {
            self.members[token.member].queued_markers.push((token, marker));
        }
    }

    /// A lane wants to commit: with the transaction that it is part of, or with the next that ends.
    pub(super) fn commit_in_transaction(&mut self, commit: Commit) {
        let member = commit.token.member;
        let transaction = self.transaction(member);
        if let End::Closing { awaited, commits } = &mut transaction.end
            && let Some(index) = awaited.iter().position(|it| *it == commit.token)
        {
            awaited.remove(index);
            commits.push(commit);
            self.end_if_complete(member);
        } else {
            self.members[member].to_commit.push(commit);
        }
    }

    fn end_if_complete(&mut self, member: usize) {
        let Some(transaction) = &self.members[member].transaction else {
            return;
        };
        if let End::Closing { awaited, .. } = &transaction.end
            && awaited.is_empty()
        {
            let number = transaction.number;
            let delay = self.rng.range(1, 30);
            self.after(delay, Event::TransactionEnds { member, number });
        }
    }

    fn is_current(&self, member: usize, number: u64) -> bool {
        self.members[member].transaction.as_ref().is_some_and(|it| it.number == number)
    }

    /// Everything is delivered, or something is not. Lanes are told what is in the transaction.
    pub(super) fn close_transaction(&mut self, member: usize, number: u64) {
        if !self.is_current(member, number) {
            return;
        }
        let is_failed = self.fault();
        let Some(transaction) = &mut self.members[member].transaction else {
            return;
        };
        let hops: Vec<_> = transaction.hops.iter().map(|it| (it.token, it.offset)).collect();
        let mut lanes: Vec<(Token, BTreeMap<usize, Vec<i64>>)> = Vec::new();
        for (token, offset) in hops {
            let (part, token) = (token.at.0, self.whole(token));
            if !lanes.iter().any(|it| it.0 == token) {
                lanes.push((token, BTreeMap::new()));
            }
            let lane = lanes.iter_mut().find(|it| it.0 == token);
            lane.into_iter().for_each(|it| it.1.entry(part).or_default().push(offset));
        }
        if is_failed {
            return self.abort(member);
        }
        let awaited: Vec<_> = lanes.iter().map(|it| it.0).collect();
        let mut commits = std::mem::take(&mut self.members[member].to_commit);
        commits.retain(|it| self.lane(it.token).is_some() && !awaited.contains(&it.token));
        if let Some(transaction) = &mut self.members[member].transaction {
            transaction.end = End::Closing { awaited, commits };
        }
        let mut lanes = lanes.into_iter();
        while let Some((token, sent)) = lanes.next() {
            if let Some((lane, _)) = self.lane(token) {
                lane.covering = None;
            }
            self.feed(token, |lane, now, slots| {
                // It may just have wanted to commit something else, which nobody has heard of yet.
                lane.tick(now, slots);
                lane.close_transaction(&sent, now, slots);
            });
            // It was aborted meanwhile, by a lane that was drained. Those that come next do not know that it was to end.
            if !self.is_current(member, number) {
                return lanes.for_each(|(token, sent)| self.publishes_failed(token, &sent));
            }
        }
        let is_empty = self.members[member].transaction.as_ref().is_some_and(
            |it| matches!(&it.end, End::Closing { awaited, .. } if awaited.is_empty() && it.hops.is_empty()),
        );
        if is_empty {
            self.end_if_complete(member);
        }
    }

    fn publishes_failed(&mut self, token: Token, sent: &BTreeMap<usize, Vec<i64>>) {
        for (part, offsets) in sent {
            for offset in offsets {
                self.feed(token, |lane, now, slots| {
                    lane.publish_failed(*part, *offset, now, slots);
                });
            }
        }
    }

    /// The group looks at the offsets, and all of it is there at once, or nothing.
    pub(super) fn transaction_ends(&mut self, member: usize, number: u64) {
        if !self.is_current(member, number) {
            return;
        }
        let is_failed = self.fault();
        let Some(Transaction { end: End::Closing { commits, .. }, .. }) =
            &self.members[member].transaction
        else {
            return;
        };
        let refused = commits.iter().map(|it| it.token);
        let refused: Vec<_> = refused.filter(|it| !self.owns(*it)).collect();
        if is_failed || !refused.is_empty() {
            for token in refused {
                self.count("refused commit");
                self.lose(token);
            }
            return self.abort(member);
        }
        let Some(transaction) = self.members[member].transaction.take() else {
            return;
        };
        self.count("own transaction");
        let End::Closing { commits, .. } = transaction.end else {
            return;
        };
        for (lane, marker) in transaction.markers {
            self.write_state(StateRecord { lane, marker, is_there: true });
        }
        for hop in &transaction.hops {
            self.ledger.hopped(hop.token.at, hop.offset);
            match hop.out.to {
                None => {
                    self.ledger.dead_lettered(hop.id);
                    self.dead_letter_lands(hop.token, hop.offset, hop.id, &hop.out);
                }
                Some(at) => self.copy_lands(at, hop.appended, true),
            }
            if let Some((lane, _)) = self.lane(hop.token) {
                lane.running.remove(&(hop.token.at, hop.offset));
            }
        }
        for (at, first) in transaction.begins {
            self.cluster.end_transaction(at, first, true, self.time);
            self.deliver_soon(at);
        }
        for Commit { token, parts, covered, cuts } in commits {
            self.keep_offsets(token, parts, &cuts);
            if let Some((lane, _)) = self.lane(token) {
                lane.settled.drain(..covered);
            }
            self.feed(token, |lane, now, slots| lane.committed(now, slots));
        }
        self.next_transaction(member);
    }

    /// The member's transaction is nothing: what was in it is tried again.
    pub(super) fn abort(&mut self, member: usize) {
        let Some(transaction) = self.members[member].transaction.take() else {
            return;
        };
        self.count("own aborted transaction");
        self.abort_logs(&transaction.begins);
        let mut told: Vec<Token> = Vec::new();
        match transaction.end {
            End::Open => {
                for hop in &transaction.hops {
                    self.feed(hop.token, |lane, now, slots| {
                        lane.publish_failed(hop.token.at.0, hop.offset, now, slots)
                    });
                }
            }
            End::Closing { awaited, commits } => {
                told.extend(awaited);
                told.extend(commits.into_iter().map(|it| it.token));
            }
        }
        for token in told {
            if let Some((lane, _)) = self.lane(token) {
                lane.covering = None;
            }
            self.feed(token, |lane, now, slots| lane.commit_failed(now, slots));
        }
        self.next_transaction(member);
    }

    fn abort_logs(&mut self, begins: &BTreeMap<Partition, i64>) {
        for (at, first) in begins {
            self.cluster.end_transaction(*at, *first, false, self.time);
            self.deliver_soon(*at);
        }
    }

    fn next_transaction(&mut self, member: usize) {
        for (token, marker) in std::mem::take(&mut self.members[member].queued_markers) {
            if self.lane(token).is_some() {
                self.mark_in_transaction(token, marker);
            }
        }
        for queued in std::mem::take(&mut self.members[member].queued) {
            if self.lane(queued.0).is_some() {
                self.publish_in_transaction(queued);
            }
        }
        if !self.members[member].to_commit.is_empty() {
            self.transaction(member);
        }
        self.poke(member);
    }

    /// A lane is gone. What it has published must not be committed without its offsets.
    pub(super) fn leave_transaction(&mut self, token: Token) {
        let token = self.whole(token);
        let transaction = self.members[token.member].transaction.as_ref();
        let is_its = |it: &Hop| self.whole(it.token) == token;
        if transaction.is_some_and(|it| it.hops.iter().any(is_its)) {
            self.abort(token.member);
        }
    }

    /// Whether the transaction waits for this lane's commit.
    pub(super) fn is_awaited(&self, token: Token) -> bool {
        let token = self.whole(token);
        let transaction = self.members[token.member].transaction.as_ref();
        transaction.is_some_and(
            |it| matches!(&it.end, End::Closing { awaited, .. } if awaited.contains(&token)),
        )
    }

    /// The member is gone: its transaction ends when it is back, or when the coordinator has waited for long enough.
    pub(super) fn orphan_transaction(&mut self, member: usize) {
        self.members[member].queued.clear();
        self.members[member].queued_markers.clear();
        if let Some(transaction) = self.members[member].transaction.take() {
            let delay = self.rng.range(10, 2000);
            self.after(delay, Event::TransactionTimesOut(transaction.begins));
        }
    }

    pub(super) fn transaction_times_out(&mut self, begins: &BTreeMap<Partition, i64>) {
        self.count("own aborted transaction");
        self.abort_logs(begins);
    }
}
