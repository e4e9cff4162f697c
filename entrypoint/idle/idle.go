// Package idle decides how long the PID 1 of a pod's container goes on: an unclaimed pod until its idle time is over, a
// claimed one until no driver has shown up for the abandon time. It is pure: what is known and the time are arguments. It
// refuses to know of files, sockets and processes.
package idle

import "time"

// Claim is what the claim file of the pod says.
type Claim int

// The claim file is created once, so a state other than Unclaimed is final.
const (
	Unclaimed Claim = iota
	Claimed
	Expired
)

// Limits bounds the waiting. Idle counts from the moment when both containers were up, zero turns it off. Abandon counts
// from the last sign of a driver and is positive.
type Limits struct {
	Idle    time.Duration
	Abandon time.Duration
}

// Warming is how much longer a container waits while the other one has never been up: its image may be large, or the
// registry slow. It doesn't wait for ever, so that a pod whose other container failed comes to an end.
const Warming = 10 * time.Minute

// Beat is how often the presence of a driver is shown to the other container, and looked for there. It is so much shorter
// than the abandon time that a few beats may be lost.
func (l Limits) Beat() time.Duration { return l.Abandon / 8 }

// State is what a PID 1 knows.
type State struct {
	Started  time.Time // when this PID 1 started, or saw the other one's start after its own
	Both     bool      // the other container is up as well
	Claim    Claim
	Attached bool      // a driver is attached to this container
	Seen     time.Time // the last sign of a driver in any container, on the clock of now
	Mark     time.Time // modification time of the file that is touched while a driver is attached, as last read
}

// Sight is what a look at the pod showed.
type Sight struct {
	Claim    Claim
	Both     bool      // the other container's PID 1 has been there
	Attached bool      // a driver is attached to this container
	Visited  bool      // a driver came or went since the look before
	Mark     time.Time // modification time of the file that is touched while a driver is attached
}

// Look takes in a sight. A driver was there if the mark changed, however it changed: a step of the wall clock must neither
// end a job nor keep a pod.
func (s State) Look(sight Sight, now time.Time) State {
	if s.Claim == Unclaimed {
		s.Claim = sight.Claim
	}
	if sight.Both && !s.Both {
		s.Both, s.Started = true, now
	}
	s.Attached = sight.Attached
	if s.Claim == Claimed && (s.Attached || sight.Visited || s.Seen.IsZero() || !sight.Mark.Equal(s.Mark)) {
		s.Seen = now
	}
	s.Mark = sight.Mark
	return s
}

// Action is what a PID 1 does next.
type Action int

// Expire means: try to create the claim file as expired, then look again. End is the clean end of an expired pod, Abandon
// the end of one whose job has lost its driver.
const (
	Wait Action = iota
	Expire
	End
	Abandon
)

// Next decides. The time says when to look again if nothing happens before; it is zero where only an event can change
// anything, so that an idle PID 1 never wakes up, and set for Wait only.
func Next(l Limits, s State, now time.Time) (Action, time.Time) {
	switch {
	case s.Claim == Expired:
		return End, time.Time{}
	case s.Claim == Unclaimed && l.Idle == 0:
		return Wait, time.Time{}
	case s.Claim == Unclaimed:
		at := s.Started.Add(l.Idle)
		if !s.Both {
			at = at.Add(Warming)
		}
		if now.Before(at) {
			return Wait, at
		}
		return Expire, time.Time{}
	case s.Attached:
		return Wait, now.Add(l.Beat())
	}
	at := s.Seen.Add(l.Abandon)
	if !now.Before(at) {
		return Abandon, time.Time{}
	}
	if beat := now.Add(l.Beat()); beat.Before(at) {
		at = beat
	}
	return Wait, at
}
