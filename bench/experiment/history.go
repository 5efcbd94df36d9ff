package main

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/fulgurite/fulgurite/run/experiment"
)

// scenario says how users of simulated histories behave.
type scenario struct {
	name string
	// users is how many users there are, 0 if nobody knows which conversations have the same
	// user, so that each is a unit.
	users int
	// spread is the standard deviation of the logarithm of how active a user is. At 0 all
	// users are equally active.
	spread float64
	// correlation is that of two conversations of one user.
	correlation float64
	mean        float64 // of the control's values
	// stars are the values above 0 that a judgment can have, evenly up to 1.
	stars int
	share float64
	// stay is for which part of the history a user is there; all come and go at random
	// times if it is less than 1.
	stay float64
}

// scenarios returns the simulated behaviors. The first is the one of the requirement.
func scenarios() []scenario {
	usual := scenario{name: "500 users, correlation 0.1", users: 500, spread: 0.5, correlation: 0.1, mean: 0.6, stars: 1, share: 0.5, stay: 1}
	with := func(name string, change func(*scenario)) scenario {
		s := usual
		s.name = name
		change(&s)
		return s
	}
	return []scenario{
		usual,
		with("users unknown: each conversation is a unit", func(s *scenario) { s.users = 0 }),
		with("correlation 0.3", func(s *scenario) { s.correlation = 0.3 }),
		with("150 users, correlation 0.2", func(s *scenario) { s.users = 150; s.correlation = 0.2 }),
		with("a few users are very active", func(s *scenario) { s.spread = 1.2 }),
		with("users come and go", func(s *scenario) { s.stay = 0.1 }),
		with("mean 0.05", func(s *scenario) { s.mean = 0.05 }),
		with("mean 0.88", func(s *scenario) { s.mean = 0.88 }),
		with("five stars", func(s *scenario) { s.stars = 4 }),
		with("share 0.1", func(s *scenario) { s.share = 0.1 }),
		with("share 0.1 of 250 users, correlation 0.2", func(s *scenario) { s.users, s.correlation, s.share = 250, 0.2, 0.1 }),
		with("50 users, correlation 0.2", func(s *scenario) { s.users, s.correlation = 50, 0.2 }),
		with("150 users, a few very active, correlation 0.2", func(s *scenario) { s.users, s.correlation, s.spread = 150, 0.2, 1.2 }),
	}
}

// history returns the judged conversations of one simulated experiment, in the order in
// which their feedback came. The candidate's values are better by effect in the mean. Values
// and the lateness of feedback depend on the user, and bad conversations are judged sooner.
func (s scenario) history(number uint64, conversations int, effect float64) []experiment.Outcome {
	const start = 1_700_000_000
	r := rand.New(rand.NewPCG(number, 0x5eed))
	type user struct {
		unit         string
		candidate    bool
		habit        float64 // a uniform number: how this user judges out of habit
		slow         float64 // how late the user's feedback is, relative to others'
		first, until float64 // when the user is there
	}
	var users []user
	var sums []float64 // of how active the users up to this one are
	total := 0.0
	if s.users > 0 {
		users, sums = make([]user, s.users), make([]float64, s.users)
		for i := range users {
			u := &users[i]
			u.unit = strconv.FormatUint(number<<32|uint64(i), 36)
			u.candidate = experiment.Assign("simulated", 7, u.unit, s.share)
			u.habit = r.Float64()
			u.slow = math.Exp(r.NormFloat64())
			u.first = r.Float64()*(1+s.stay) - s.stay
			u.until = u.first + s.stay
			if s.stay == 1 {
				u.first, u.until = 0, 1
			}
			total += math.Exp(s.spread * r.NormFloat64())
			sums[i] = total
		}
	}
	met := func(at float64) user {
		if users == nil {
			unit := strconv.FormatUint(r.Uint64(), 36)
			return user{unit: unit, candidate: experiment.Assign("simulated", 7, unit, s.share), habit: r.Float64(), slow: math.Exp(r.NormFloat64())}
		}
		for {
			i, _ := slices.BinarySearch(sums, r.Float64()*total)
			if u := users[i]; u.first <= at && at <= u.until {
				return u
			}
		}
	}
	outcomes := make([]experiment.Outcome, conversations)
	for i := range outcomes {
		at := float64(i) / float64(conversations)
		u := met(at)
		place := r.Float64()
		if r.Float64() < math.Sqrt(s.correlation) { // two conversations are both by habit with probability correlation
			place = u.habit
		}
		mean := s.mean
		if u.candidate {
			mean += effect
		}
		value := s.value(place, mean)
		// On average a user is slow by exp(0.5), so the mean lateness is 0.18 of the history at a mean value of 0.6.
		late := r.ExpFloat64() * u.slow * (0.5 + value) / 10
		outcomes[i] = experiment.Outcome{Unit: u.unit, Candidate: u.candidate, Value: value, At: time.Unix(start, int64((at+late)*1e12))}
	}
	slices.SortFunc(outcomes, func(a, b experiment.Outcome) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Unit, b.Unit))
	})
	return outcomes
}

// value returns the quantile at a place, from 0 to 1, of the distribution of judgments with
// a given mean: a binomial distribution of the number of stars.
func (s scenario) value(place, mean float64) float64 {
	if s.stars == 1 {
		if place < mean {
			return 1
		}
		return 0
	}
	chance := math.Pow(1-mean, float64(s.stars))
	stars := 0
	for sum := chance; place >= sum && stars < s.stars; sum += chance {
		chance *= float64(s.stars-stars) / float64(stars+1) * mean / (1 - mean)
		stars++
	}
	return float64(stars) / float64(s.stars)
}
