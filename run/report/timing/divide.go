package timing

import (
	"math"
	"slices"
	"time"

	"github.com/fulgurite/fulgurite/record"
)

// part is what an attempt does at a moment. Of several, the lowest counts.
type part int

const (
	decode part = iota
	prefill
	queued
	call
	grading
	between
	starting
	ending
	idle
	parts // how many there are
)

// interval is a time in which an attempt is in a part.
type interval struct {
	part        part
	from, until time.Time
}

// divide gives each moment between from and until to the lowest part that has an interval
// there, or to idle.
func divide(all []interval, from, until time.Time) (out [parts]time.Duration) {
	type edge struct {
		at    time.Time
		part  part
		count int
	}
	edges := make([]edge, 0, 2*len(all))
	for _, i := range all {
		i.from, i.until = later(i.from, from), earlier(i.until, until)
		if i.until.After(i.from) {
			edges = append(edges, edge{i.from, i.part, 1}, edge{i.until, i.part, -1})
		}
	}
	slices.SortFunc(edges, func(a, b edge) int { return a.at.Compare(b.at) })
	var open [parts]int
	open[idle] = 1
	last := from
	for _, e := range append(edges, edge{until, idle, 0}) {
		if e.at.After(last) {
			first := slices.IndexFunc(open[:], func(n int) bool { return n > 0 })
			out[first] += e.at.Sub(last)
			last = e.at
		}
		open[e.part] += e.count
	}
	return out
}

// intervalsOf returns what an attempt did, and when. Of the time of a call the sampler's
// parts come last: what comes before them is the way there and loading the version.
func intervalsOf(t record.AttemptTimes) []interval {
	end := endOf(t)
	returned := end
	if !t.Returned.IsZero() {
		returned = t.Returned
	}
	first, last := returned, returned
	for i, c := range t.Calls {
		until := c.Started.Add(c.Duration)
		if i == 0 {
			first, last = c.Started, until
		}
		first, last = earlier(first, c.Started), later(last, until)
	}
	out := []interval{{starting, t.Begun, first}, {between, first, last}, {ending, last, returned}, {grading, returned, end}}
	for _, c := range t.Calls {
		if c.ReplayedFrom > 0 {
			continue
		}
		until := c.Started.Add(c.Duration)
		out = append(out, interval{call, c.Started, until})
		for _, p := range []struct {
			part part
			took time.Duration
		}{{decode, c.Sampling.Decode}, {prefill, c.Sampling.Prefill}, {queued, c.Sampling.Queued}} {
			from := later(until.Add(-p.took), c.Started)
			out = append(out, interval{p.part, from, until})
			until = from
		}
	}
	return out
}

// endOf returns when an attempt ended: with its reward, with its seal or, if it has
// neither, with the last call on record.
func endOf(t record.AttemptTimes) time.Time {
	end := t.Ended
	if end.IsZero() {
		end = t.Begun
		for _, c := range t.Calls {
			end = later(end, c.Started.Add(c.Duration))
		}
		return end
	}
	if t.Outcome == record.InfraFault {
		return end
	}
	return later(end, t.Graded)
}

// divided has the intervals of several attempts.
type divided struct {
	begun, ended time.Time // of all of them; zero without any
	intervals    []interval
	attempts     Attempts
}

func divideAttempts(all []record.AttemptTimes) divided {
	var d divided
	var sums [parts]time.Duration
	for _, t := range all {
		end := endOf(t)
		if d.begun.IsZero() {
			d.begun, d.ended = t.Begun, end
		}
		d.begun, d.ended = earlier(d.begun, t.Begun), later(d.ended, end)
		intervals := intervalsOf(t)
		for i, took := range divide(intervals, t.Begun, end) {
			sums[i] += took
		}
		d.intervals = append(d.intervals, intervals...)
		d.attempts.Count++
		for _, c := range t.Calls {
			if c.ReplayedFrom == 0 {
				d.attempts.Calls++
				d.attempts.SharedTokens += c.Sampling.Shared
			}
		}
	}
	d.attempts.Rollouts = rolloutsOf(sums)
	return d
}

// divide returns the wall-clock time of the attempts until a moment.
func (d divided) divide(until time.Time) Rollouts {
	return rolloutsOf(divide(d.intervals, d.begun, until))
}

func rolloutsOf(took [parts]time.Duration) Rollouts {
	var sum time.Duration
	for _, t := range took {
		sum += t
	}
	return Rollouts{
		Seconds: sum.Seconds(), Decode: took[decode].Seconds(), Prefill: took[prefill].Seconds(), Queued: took[queued].Seconds(),
		Call: took[call].Seconds(), Grading: took[grading].Seconds(), Between: took[between].Seconds(),
		Starting: took[starting].Seconds(), Ending: took[ending].Seconds(), Idle: took[idle].Seconds(),
	}
}

// mean returns the mean of steps. Counts are rounded to whole numbers.
func mean(steps []Step) *Step {
	if len(steps) == 0 {
		return nil
	}
	var out Step
	sums, n := out.numbers(), float64(len(steps))
	for _, s := range steps {
		for i, v := range s.numbers() {
			*sums[i] += *v
		}
		out.Attempts.Count += s.Attempts.Count
		out.Attempts.Calls += s.Attempts.Calls
		out.Attempts.SharedTokens += s.Attempts.SharedTokens
	}
	for _, v := range sums {
		*v /= n
	}
	for _, count := range []*int{&out.Attempts.Count, &out.Attempts.Calls, &out.Attempts.SharedTokens} {
		*count = int(math.Round(float64(*count) / n))
	}
	return &out
}

// numbers returns pointers to all times of a step.
func (s *Step) numbers() []*float64 {
	return slices.Concat([]*float64{
		&s.Seconds, &s.Batch.Seconds, &s.Batch.Wait, &s.Batch.Make,
		&s.Update.Seconds, &s.Update.Wait, &s.Update.Load, &s.Update.Score, &s.Update.Gradient, &s.Update.Optimizer, &s.Update.Save, &s.Update.Other,
		&s.Next.Seconds, &s.Next.Evaluation, &s.Next.Other,
	}, s.Rollouts.numbers(), s.Attempts.numbers())
}

func (r *Rollouts) numbers() []*float64 {
	return []*float64{&r.Seconds, &r.Decode, &r.Prefill, &r.Queued, &r.Call, &r.Grading, &r.Between, &r.Starting, &r.Ending, &r.Idle}
}
