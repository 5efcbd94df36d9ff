package evaluation

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/tasks"
)

// Clusters divides tasks into those that are alike, such as all questions about one
// database. A resample then draws whole clusters, and a test flips the sign of a whole
// cluster (Miller 2024, "Adding Error Bars to Evals", arXiv:2411.00640, §2.2).
type Clusters struct {
	of    []int // by task
	sizes []int // by cluster
}

// ClustersOf divides tasks by the value of a key of their metadata. An empty key makes each
// task a cluster of its own. It is ErrIncomparable if a task lacks the key, or if all tasks
// have one value.
func ClustersOf(all []tasks.Task, key string) (Clusters, error) {
	out := Clusters{of: make([]int, len(all))}
	if key == "" {
		out.sizes = make([]int, len(all))
		for i := range all {
			out.of[i], out.sizes[i] = i, 1
		}
		return out, nil
	}
	numbers := map[string]int{}
	for i, task := range all {
		value, has := task.Metadata[key]
		if !has {
			return Clusters{}, fmt.Errorf("%w by clusters: the metadata of task %s has no %q; its keys are: %s",
				ErrIncomparable, task.ID, key, strings.Join(slices.Sorted(maps.Keys(task.Metadata)), ", "))
		}
		text := fmt.Sprint(value)
		number, known := numbers[text]
		if !known {
			number = len(numbers)
			numbers[text], out.sizes = number, append(out.sizes, 0)
		}
		out.of[i] = number
		out.sizes[number]++
	}
	if len(out.sizes) < 2 {
		return Clusters{}, fmt.Errorf("%w by clusters: %q is the same in all tasks, and one cluster has no interval", ErrIncomparable, key)
	}
	return out, nil
}

// sums returns the sums of the values of each cluster's tasks, scaled so that their mean
// over clusters is the mean over tasks.
func (c Clusters) sums(values []float64) []float64 {
	out := make([]float64, len(c.sizes))
	scale := float64(len(c.sizes)) / float64(len(c.of))
	for i, value := range values {
		out[c.of[i]] += value * scale
	}
	return out
}

// Mean returns the mean over tasks of the mean of each task's values, with its interval:
// percentiles of the means of as many clusters, drawn with replacement. values are by task; a
// task without values is left out. Without any value it returns nil.
func (c Clusters) Mean(values [][]float64) *Estimate {
	sums, sizes := make([]float64, len(c.sizes)), make([]int, len(c.sizes))
	for i, samples := range values {
		if len(samples) > 0 {
			mean, _ := MeanOf(samples)
			sums[c.of[i]] += mean
			sizes[c.of[i]]++
		}
	}
	var filled []int // the clusters with a value
	once := make([]int, len(sums))
	for i, n := range sizes {
		if n > 0 {
			filled, once[i] = append(filled, i), 1
		}
	}
	if len(filled) == 0 {
		return nil
	}
	ratio := func(times []int) float64 {
		sum, n := 0.0, 0
		for i, k := range times {
			sum += float64(k) * sums[i]
			n += k * sizes[i]
		}
		return sum / float64(n)
	}
	random := rand.New(rand.NewPCG(1, uint64(len(filled)))) // a fixed seed, so that the numbers are the same every time
	means, drawn := make([]float64, resamples), make([]int, len(sums))
	for k := range means {
		clear(drawn)
		for range filled {
			drawn[filled[random.IntN(len(filled))]]++
		}
		means[k] = ratio(drawn)
	}
	slices.Sort(means)
	return &Estimate{Mean: ratio(once), Low: percentile(means, (1-Level)/2), High: percentile(means, (1+Level)/2)}
}
