package bench

import "time"

// Plan is how much of everything one run measures.
type Plan struct {
	Rounds int // runs of each rate; their median counts

	Rows        int // of a burn-down
	Requests    int // of intake and end to end
	LimitRows   int
	RiverJobs   int
	RiverTxJobs int

	Rates []Rate

	ClaimRows    int // taken by the claim whose buffers are counted
	FinishedRows int // of the history that must not matter to it
	WaitingRows  int

	Snapshot       time.Duration // how long a session has held its snapshot when the rate is taken
	SnapshotWindow time.Duration // over which it is taken
	SnapshotRows   int           // 0: as many as the burn-down rate asks for

	IdleSettle time.Duration // until a sender without work has calmed down
	IdleFor    time.Duration

	Lease        time.Duration // 0: as shipped
	TakeoverRows int

	Backlog  int // rows of tenant A
	FairRate int // requests per second of tenant B
	FairRows int
}

// Rate is one load of the latency measurement: Rows requests at PerSecond, after
// Warm that do not count.
type Rate struct{ PerSecond, Rows, Warm int }

// Quick takes under four minutes.
func Quick() Plan {
	return Plan{Rounds: 1, Rows: 40_000, Requests: 40_000, LimitRows: 50_000, RiverJobs: 40_000, RiverTxJobs: 6_000,
		Rates:     []Rate{{200, 1_000, 200}, {2_000, 8_000, 2_000}},
		ClaimRows: 100, FinishedRows: 200_000, WaitingRows: 100_000,
		Snapshot: 6 * time.Second, SnapshotWindow: 2 * time.Second,
		IdleSettle: 10 * time.Second, IdleFor: 10 * time.Second,
		TakeoverRows: 40, Backlog: 10_000, FairRate: 100, FairRows: 200}
}

// Full is the run whose figures are published.
func Full() Plan {
	return Plan{Rounds: 3, Rows: 50_000, Requests: 50_000, LimitRows: 100_000, RiverJobs: 50_000, RiverTxJobs: 10_000,
		Rates:     []Rate{{1, 60, 5}, {200, 4_000, 400}, {2_000, 20_000, 4_000}},
		ClaimRows: 100, FinishedRows: 10_000_000, WaitingRows: 1_000_000,
		Snapshot: 16 * time.Second, SnapshotWindow: 4 * time.Second,
		IdleSettle: 15 * time.Second, IdleFor: 60 * time.Second,
		TakeoverRows: 40, Backlog: 100_000, FairRate: 100, FairRows: 1_000}
}
