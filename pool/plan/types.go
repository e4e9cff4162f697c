package plan

import "time"

// State is where in its life a pod is; the words are those of factory.Phase.
type State string

// The states, in order of a pod's life.
const (
	Warming  State = "warming"  // exists and is not Ready yet
	Idle     State = "idle"     // Ready and claimable
	Claimed  State = "claimed"  // bound to one job
	Expired  State = "expired"  // ended by its own idle timer
	Failed   State = "failed"   // ended for another reason, unclaimed
	Finished State = "finished" // claimed and ended
	Ending   State = "ending"   // deletion has begun
)

// Outlook is what may become of a pod in trouble, and what the trouble says about others like it.
type Outlook int

// The outlooks.
const (
	Fine    Outlook = iota
	Waits           // may come right by itself, and others like it do no harm: no node has room yet
	Blocked         // comes right only when somebody changes something: an image that can't be pulled, a missing Secret
	Over            // can't come right: a container has ended
	Lost            // taken away, or out of reach, which says nothing about others: a node is gone
)

// Trouble is why a pod isn't idle. The zero Trouble is none.
type Trouble struct {
	Outlook Outlook
	Reason  string // of a fixed set, see status.Reason
	Message string // the cluster's own words
}

// Pod is one pod of the pool.
type Pod struct {
	Name, UID string
	State     State
	Created   time.Time
	Moved     time.Time     // of a warming pod: when it last got on (created, given a node)
	Ready     time.Time     // since when an idle or claimed pod is Ready; zero where it isn't
	Ended     time.Time     // when an expired, failed or finished pod ended
	IdleTime  time.Duration // an idle pod ends itself after this; 0 = never
	Template  string        // template hash
	Trouble   Trouble       // of warming and failed pods
	Deadline  time.Time     // of a claimed pod: when the cluster should have ended its job; zero = never
}

// Want is what the configuration asks of the pool at this time.
type Want struct {
	Count            int           // idle pods, at least
	ScaleFactor      float64       // idle pods are at least the claimed ones times this; 0 = off
	ScaleFactorLimit int           // cap of the factor's part; 0 = none
	IdleTime         time.Duration // surplus pods go once they have been idle for this; 0 = at once
	Template         string        // template hash of the pods that would be created now
	Limit            int           // idle, warming and claimed pods of the runner, in all its pools; 0 = no limit
	Burst            int           // creates in one plan, at most
	NotBefore        time.Time     // no creates before this: the API server has refused one
	Yield            bool          // quota leaves no place for replacements: pods that are to be replaced go first
	Paused           bool          // no creates, and surplus stays
	Drained          bool          // nothing is wanted, and all unclaimed pods go, at once
	Removed          bool          // the pool has left the configuration: all unclaimed pods go, at once, …
	Replaced         bool          // … but where another pool replaces it, …
	Keep             int           // … so many idle ones stay until those of the other one are Ready
}

// Have is what there is.
type Have struct {
	Name    string // of the pool
	Pods    []Pod
	Others  Others
	Former  Former
	History History
}

// Others are the pods of the runner outside this pool; they count against its limit.
type Others struct {
	Live   int // idle, warming and claimed, those of Pools and Former too
	Ending int
	Pools  []Demand // the runner's other configured pools; a pool that can't make pods now wants no more than it has
}

// History is what earlier plans have learnt of the pool's failures. It is given back with each Result; to lose it costs one
// more failure, no more. Births are compared, not ends: they are all read off one clock, the API server's.
type History struct {
	Failures int       // failures in a row; pauses grow with it
	Until    time.Time // no creates before this
	// FailedBorn and ProvenBorn are when the youngest pod was created that has failed, and that has become Ready. While the
	// failure is the younger one, pods are made one at a time.
	FailedBorn, ProvenBorn time.Time
	Reason, Message        string // of the last failure
}

// Reason is why a pod is deleted; the set is small and fixed, since it is a metric label too.
type Reason string

// The reasons.
const (
	DeleteExpired  Reason = "expired"  // it ended itself after its idle time
	DeleteFailed   Reason = "failed"   // it ended, or a container of it did, before anybody claimed it
	DeleteLost     Reason = "lost"     // it was evicted, preempted, or its node went away
	DeleteDeadline Reason = "deadline" // its job should have ended long ago, and nobody has ended it
	DeleteFinished Reason = "finished" // its job is over and no driver has removed it
	DeleteOverdue  Reason = "overdue"  // it should have ended itself, and didn't
	DeleteBlocked  Reason = "blocked"  // it can't start, and another one is kept to find out when that changes
	DeleteStuck    Reason = "stuck"    // it doesn't start, and nothing says why
	DeleteSurplus  Reason = "surplus"  // fewer are wanted
	DeleteLimit    Reason = "limit"    // the runner's limit is exceeded, or another of its pools has too little of it
	DeleteReplaced Reason = "replaced" // the configuration makes other pods by now, and enough of them are there
	DeleteDrained  Reason = "drained"  // the pool is drained
	DeleteRemoved  Reason = "removed"  // the pool has left the configuration
)

// Deletion is one pod to delete.
type Deletion struct {
	Name, UID string
	Reason    Reason
}

// Shortfall is why fewer pods are idle than wanted, where it isn't just that pods take a moment to start.
type Shortfall struct {
	Reason  string
	Message string
}

// Reasons of a Shortfall that come from plan itself; the others are those of a pod's Trouble.
const (
	ReasonLimit = "Limit"
	ReasonSlow  = "Slow"
)

// Counts are the pods as they were found.
type Counts struct {
	Warming, Idle, Claimed, Expired, Failed, Finished, Ending int

	Expiring int // of the idle ones: about to end themselves, so that they don't count towards what is wanted
	Outdated int // of the idle ones that aren't expiring: of another template, so that they are to be replaced
}

// Result is a plan. Deletes come before creates when it is carried out.
type Result struct {
	Create    int
	Delete    []Deletion // by name
	Wanted    int        // idle pods wanted, with the factor's part
	Target    int        // of them what the runner's limit allows this pool
	Full      bool       // the runner's limit is reached
	Counts    Counts
	Shortfall *Shortfall // nil where none is known
	RequeueAt time.Time  // when time alone changes the plan; always later than now; zero = never
	Again     bool       // Burst has cut the creates: plan again once they are made
	History   History
}

// The times that plan goes by.
const (
	maxLead      = time.Minute      // a pod is replaced this long before it expires, or a quarter of its idle time, …
	maxJitter    = 5 * time.Minute  // … and up to this earlier, or a tenth of its idle time, so that a pool isn't replaced at once
	overdueAfter = time.Minute      // past its idle time
	deadlineKept = 5 * time.Minute  // past a claimed pod's deadline; the kubelet ends it by then, if it can
	finishedKept = 5 * time.Minute  // a driver reads from the ended pod how its job ended
	slowAfter    = 5 * time.Minute  // a warming pod without trouble that hasn't got on is named
	stuckAfter   = 30 * time.Minute // and replaced
	provenAfter  = time.Minute      // a pod that has been Ready this long ends a row of failures
	firstPause   = 10 * time.Second // after a failure; doubled with each
	maxPause     = 5 * time.Minute
	firstProbe   = time.Minute // how long a blocked probe is kept before another is tried; doubled with each
	maxProbe     = 10 * time.Minute
)
