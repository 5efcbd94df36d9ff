// Command learning compares how different settings of one spec learn. It trains every
// variant with every seed, one run after the other, on equal tasks and with equal numbers
// of samples. It prints three mean rewards: of all training rollouts (the area under the
// curve), of the last tenth of the steps, and of the last version on the test split. Each
// is a mean over seeds with a 95 % interval. For the first and the last of them it prints
// the difference to the first variant; these differences are taken seed by seed and have
// their own interval. It also draws the curves.
//
//	go run ./bench/learning -spec examples/maze/spec.yaml -seeds 5 \
//	    -variants credit.assignment=identical,discounted,gigpo,value_difference,turn_gae -svg curves.svg
//	go run ./bench/learning -spec examples/calc/spec.yaml -seeds 3 \
//	    -variants 'training.lag=0,2,4' -and 'loss.correction=none,decoupled'
package main
