package evaluation

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Level is the probability that an interval contains the mean over all tasks that could
// have been drawn.
const Level = 0.95

// resamples is how often the tasks are resampled for an interval. The ends of the
// interval then have an error of about a twentieth of its width.
const resamples = 2000

// MeanOf returns the mean of rewards and its standard error: the square root of their
// sample variance divided by their number, 0 for fewer than two rewards.
func MeanOf(rewards []float64) (mean, stdError float64) {
	n := float64(len(rewards))
	if n == 0 {
		return 0, 0
	}
	for _, r := range rewards {
		mean += r / n
	}
	if n == 1 {
		return mean, 0
	}
	for _, r := range rewards {
		stdError += (r - mean) * (r - mean) / (n - 1)
	}
	return mean, math.Sqrt(stdError / n)
}

// Estimate is a mean over tasks and its interval at Level. The interval consists of
// percentiles of the means of as many tasks, drawn with replacement (Efron and
// Tibshirani, An Introduction to the Bootstrap, 1993, §13.3). Tasks are drawn and not
// samples, since samples of one task are alike. If all tasks are equal, the interval has
// no width; it then tells nothing about tasks that are not among them.
type Estimate struct {
	Mean float64 `json:"mean"`
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// estimates estimates several values of tasks that belong to n classes. counts holds the
// number of tasks in each class, and values[k][class] is the k-th value of a task of the
// class. All estimates use the same draws.
func estimates(counts []int, values [][]float64) []Estimate {
	var tasks []int // the class of each
	for class, n := range counts {
		for range n {
			tasks = append(tasks, class)
		}
	}
	out, means := make([]Estimate, len(values)), make([][]float64, len(values))
	for k, value := range values {
		out[k].Mean = mean(counts, value)
	}
	random := rand.New(rand.NewPCG(1, uint64(len(tasks)))) // a fixed seed, so that the numbers are the same every time
	drawn := make([]int, len(counts))
	for range resamples {
		clear(drawn)
		for range tasks {
			drawn[tasks[random.IntN(len(tasks))]]++
		}
		for k, value := range values {
			means[k] = append(means[k], mean(drawn, value))
		}
	}
	for k := range values {
		slices.Sort(means[k])
		out[k].Low, out[k].High = percentile(means[k], (1-Level)/2), percentile(means[k], (1+Level)/2)
	}
	return out
}

// mean returns the mean over all tasks. counts holds the number of tasks in each class,
// and values the value of each class.
func mean(counts []int, values []float64) float64 {
	sum, n := 0.0, 0
	for class, count := range counts {
		sum += float64(count) * values[class]
		n += count
	}
	return sum / float64(n)
}

// percentile returns the value below which a given part of a sorted list lies. It
// interpolates between elements.
func percentile(sorted []float64, part float64) float64 {
	at := part * float64(len(sorted)-1)
	low := int(math.Floor(at))
	high := min(low+1, len(sorted)-1)
	return sorted[low] + (at-float64(low))*(sorted[high]-sorted[low])
}
