// Package lease decides which member of a pool holds which partition, and keeps the pool balanced while members come, go and die.
//
// # The protocol
//
// A backend keeps two kinds of records. A member has one record with its own duration, which it renews every third of it. A partition has
// one record, its lease, that names a holder. Nothing else is shared: there is no leader.
//
// Every member watches all records and computes the same assignment from the same members and holders (partition.Assign). A holder gives up
// what the assignment gives to another: it drains the partition (Handler.Release) and then, by one compare-and-swap, makes the other the
// holder. A member takes, by compare-and-swap, what the assignment gives to it and nobody holds: a lease that is missing, names nobody, or
// names a member that has no record.
//
// A member is dead when its record is gone. Whoever has watched a record, without interruption, for the record's own duration and has not
// seen it renewed removes it, on condition that it still is as it was seen. So a death is one fact that all members see, not an opinion of
// each. Time is measured by the observer's monotonic clock alone; no wall clocks are compared. An observer whose own view was interrupted
// starts its measurement anew, for what kept it from reading may have kept the others from renewing. A member that finds its own record
// gone joins again.
//
// # Weights
//
// With Config.Events, a member measures how many events of each of its partitions it delivers, smoothed, and writes that into its record with its
// renewals, in coarse steps. While all members that are to hold partitions do so, the assignment is partition.AssignWeighted: it keeps the
// loads alike, not the numbers. A member that is loaded by a quarter more than the mean gives one partition away (partition.Relieve) once it
// has been so, and no lease of the pool has changed, for half of its duration; and no partition is given away again before its holder has had it
// for as long. If one member does not say weights, they count for nothing. What the last holder of a partition said of it holds until
// the next has measured it; who came later does not know that, so that for one renewal members may want different things.
//
// # What is promised
//
//   - While records are changed by members only, and members are not cut off from the backend, at most one member at a time is between
//     Gained and the return of Release for a partition.
//   - A partition goes from Release of the old holder to Gained of the new one by a single write.
//   - When nothing changes any more, every partition is held by a live member, and without weights no member has more than one partition
//     more than another. The moves that lead there are the fewest possible.
//   - A partition whose holder died is held again within the dead member's duration plus one second, if the backend can be reached.
//   - While the backend is unreachable, members keep what they hold: nobody can take it from them.
//   - Records that were edited, emptied, deleted, or restored from a backup lead to Lost and a new holder, never to a panic or to a partition
//     that stays without one.
//
// # What is not promised
//
// A lease does not fence. A member that was paused, or cut off from the backend, does not know that it was declared dead and that another
// holds its partitions: until it sees that, two members believe that they hold the same partition. Nothing in this package prevents it, and
// no choice of durations would. What prevents harm is the epoch of the partition in Postgres, which the new holder raises when it claims
// the partition and every decision is checked against. Whoever uses this package without such a check gives up its guarantees.
//
// Nor does the package know whether a member does its work. A member whose Handler blocks for longer than the member's duration stops
// renewing and is declared dead; one that is alive and does nothing keeps its partitions.
package lease
