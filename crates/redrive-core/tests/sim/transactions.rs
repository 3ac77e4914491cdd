//! Members that publish and commit in one transaction, every now and then.

use std::collections::BTreeMap;

use super::{Commit, Committed, EPOCH, Event, Hops, Token, World};
use crate::cluster::Partition;

/// What a member has published and not committed yet.
#[derive(Debug, Default)]
pub(super) struct Transaction {
    number: u64,
    hops: Vec<Hop>,
    /// Where it begins in each log.
    begins: BTreeMap<Partition, i64>,
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
    is_dead_letter: bool,
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
        let is_dead_letter = out.to.is_none();
        transaction.hops.push(Hop { token, offset, id, is_dead_letter });
        if let Some(at) = out.to {
            let now = self.time + EPOCH;
            let appended = self.cluster.append(at, id, out.headers.clone(), now, &mut self.rng);
            let first = *self.transaction(token.member).begins.entry(at).or_insert(appended);
            let log = self.cluster.logs.entry(at).or_default();
            log.open.entry(first).or_default().push(appended);
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
        let mut lanes: Vec<(Token, Vec<i64>)> = Vec::new();
        for hop in &transaction.hops {
            match lanes.iter_mut().find(|it| it.0 == hop.token) {
                Some(lane) => lane.1.push(hop.offset),
                None => lanes.push((hop.token, vec![hop.offset])),
            }
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
        for (token, offsets) in lanes {
            if let Some((lane, _)) = self.lane(token) {
                lane.covering = None;
            }
            self.feed(token, |lane, now, slots| {
                // It may just have wanted to commit something else, which nobody has heard of yet.
                lane.tick(now, slots);
                lane.close_transaction(&offsets, now, slots);
            });
            // Its block could not even be asked for.
            if !self.is_current(member, number) {
                return;
            }
        }
        let is_empty = self.members[member].transaction.as_ref().is_some_and(
            |it| matches!(&it.end, End::Closing { awaited, .. } if awaited.is_empty() && it.hops.is_empty()),
        );
        if is_empty {
            self.end_if_complete(member);
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
        let refused: Vec<_> =
            refused.filter(|it| !self.cluster.is_owner(it.at, it.member, it.generation)).collect();
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
        for hop in &transaction.hops {
            self.ledger.hopped(hop.token.at, hop.offset);
            if hop.is_dead_letter {
                self.ledger.dead_lettered(hop.id);
            }
            if let Some((lane, _)) = self.lane(hop.token) {
                lane.running.remove(&hop.offset);
            }
        }
        for (at, first) in transaction.begins {
            self.cluster.end_transaction(at, first, true, self.time);
            self.deliver_soon(at);
        }
        for Commit { token, offset, metadata, covered } in commits {
            self.cluster.offsets.insert(token.at, Committed { offset, metadata });
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
                        lane.publish_failed(hop.offset, now, slots)
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
        let transaction = self.members[token.member].transaction.as_ref();
        if transaction.is_some_and(|it| it.hops.iter().any(|it| it.token == token)) {
            self.abort(token.member);
        }
    }

    /// Whether the transaction waits for this lane's commit.
    pub(super) fn is_awaited(&self, token: Token) -> bool {
        let transaction = self.members[token.member].transaction.as_ref();
        transaction.is_some_and(
            |it| matches!(&it.end, End::Closing { awaited, .. } if awaited.contains(&token)),
        )
    }

    /// The member is gone: its transaction ends when it is back, or when the coordinator has waited for long enough.
    pub(super) fn orphan_transaction(&mut self, member: usize) {
        self.members[member].queued.clear();
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
