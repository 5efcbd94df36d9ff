package evaluation

import (
	"slices"

	"github.com/fulgurite/fulgurite/spec"
)

// Passes says how often tasks are solved by several samples. The keys of its JSON are a
// public contract.
type Passes struct {
	// Success is the least reward that counts as a success, apart from rounding.
	Success float64 `json:"success"`
	Tasks   int     `json:"tasks"`
	Samples int     `json:"samples"` // of each task
	Level   float64 `json:"level"`   // of the intervals
	// ByK holds one Pass for k = 1, 2, 4, … and for the number of samples.
	ByK []Pass `json:"by_k"`
}

// Pass holds the results for one number of samples, k.
type Pass struct {
	K int `json:"k"`
	// At is pass@k, the probability that at least one of k samples of a task succeeds.
	At Estimate `json:"pass_at_k"`
	// All is pass^k, the probability that all of k samples of a task succeed.
	All Estimate `json:"pass_hat_k"`
}

// PassesOf estimates both probabilities from the rewards of each task's samples. All
// tasks have the same number of samples. It returns nil if this number is less than two,
// or if there are no tasks.
func PassesOf(rewards [][]float64, success float64) *Passes {
	if len(rewards) == 0 || len(rewards[0]) < 2 {
		return nil
	}
	n := len(rewards[0])
	p := &Passes{Success: success, Tasks: len(rewards), Samples: n, Level: Level}
	counts := make([]int, n+1) // tasks by their number of successes
	for _, samples := range rewards {
		successes := 0
		for _, r := range samples {
			if spec.Reaches(r, success) {
				successes++
			}
		}
		counts[successes]++
	}
	var values [][]float64
	for _, k := range sizes(n) {
		p.ByK = append(p.ByK, Pass{K: k})
		at, all := make([]float64, n+1), make([]float64, n+1)
		for c := range counts {
			at[c], all[c] = PassAt(n, c, k), PassAll(n, c, k)
		}
		values = append(values, at, all)
	}
	for i, e := range estimates(counts, values) {
		if i%2 == 0 {
			p.ByK[i/2].At = e
		} else {
			p.ByK[i/2].All = e
		}
	}
	return p
}

// sizes returns the powers of 2 up to n, and n.
func sizes(n int) []int {
	var out []int
	for k := 1; k <= n; k *= 2 {
		out = append(out, k)
	}
	if !slices.Contains(out, n) {
		out = append(out, n)
	}
	return out
}

// PassAt returns the unbiased estimate of pass@k from n samples of a task, of which c
// succeeded: 1 − C(n−c, k) / C(n, k), for 1 ≤ k ≤ n and 0 ≤ c ≤ n (Chen et al. 2021,
// "Evaluating Large Language Models Trained on Code", arXiv:2107.03374, §2.1). It is
// computed as a product, since the coefficients are too large for a float64.
func PassAt(n, c, k int) float64 { return 1 - among(n, n-c, k) }

// PassAll returns the unbiased estimate of pass^k from n samples of a task, of which c
// succeeded: C(c, k) / C(n, k), for 1 ≤ k ≤ n and 0 ≤ c ≤ n (Yao et al. 2024, "τ-bench",
// arXiv:2406.12045, §3).
func PassAll(n, c, k int) float64 { return among(n, c, k) }

// among returns C(m, k) / C(n, k): the probability that k of n samples, drawn without
// replacement, are all among a given m of them.
func among(n, m, k int) float64 {
	p := 1.0
	for i := range k {
		p *= float64(max(0, m-i)) / float64(n-i)
	}
	return p
}
