package credit

const (
	// solveRounds and solvePrecision end the search for a solution.
	solveRounds    = 60
	solvePrecision = 1e-8
)

// row is an example with numbered features. A feature has the value 1 if it is present.
type row struct {
	features []int32
	outcome  float64
}

func meanOf(rows []row) float64 {
	sum := 0.0
	for _, r := range rows {
		sum += r.outcome
	}
	return sum / float64(len(rows))
}

// dot returns the product of weights and a row.
func dot(weights []float64, features []int32) float64 {
	sum := 0.0
	for _, f := range features {
		sum += weights[f]
	}
	return sum
}

// lengthOf returns the mean number of features of a row.
func lengthOf(rows []row) float64 {
	n := 0
	for _, r := range rows {
		n += len(r.features)
	}
	return float64(n) / float64(len(rows))
}

// solve minimizes Σ(x·w − (y − mean))² + strength·length·|w|² by conjugate gradients that
// start at w = 0. length is the mean number of features of a row.
func solve(rows []row, mean, strength float64, size int) []float64 {
	strength *= lengthOf(rows)
	w := make([]float64, size)
	// The residual of the normal equations (XᵀX + strength·length)·w = Xᵀ(y − mean).
	residual := make([]float64, size)
	for _, r := range rows {
		add(residual, r, r.outcome-mean)
	}
	direction := append([]float64(nil), residual...)
	left := square(residual)
	enough := solvePrecision * solvePrecision * left
	image := make([]float64, size)
	for round := 0; round < solveRounds && left > enough; round++ {
		for i := range image {
			image[i] = strength * direction[i]
		}
		for _, r := range rows {
			add(image, r, dot(direction, r.features))
		}
		step := left / product(direction, image)
		for i := range w {
			w[i] += step * direction[i]
			residual[i] -= step * image[i]
		}
		before := left
		left = square(residual)
		for i := range direction {
			direction[i] = residual[i] + left/before*direction[i]
		}
	}
	return w
}

// add adds a multiple of a row to a sum of rows.
func add(sum []float64, r row, by float64) {
	for _, f := range r.features {
		sum[f] += by
	}
}

func square(x []float64) float64 { return product(x, x) }

func product(x, y []float64) float64 {
	sum := 0.0
	for i, v := range x {
		sum += v * y[i]
	}
	return sum
}
