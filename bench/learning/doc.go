// Command learning compares how settings of one spec learn: every variant is
// trained with every seed, one run after the other, on equal tasks and equal numbers
// of samples. It prints the mean reward of all training rollouts (the area under the
// curve), of the last tenth of the steps, and of the last version on the test split,
// each as a mean over seeds with a 95 % interval, how far the first and the last of
// these lie from the first variant's (differences taken seed by seed, which have an
// interval of their own), and draws the curves.
//
//	go run ./bench/learning -spec examples/maze/spec.yaml -seeds 5 \
//	    -variants credit.assignment=identical,discounted,gigpo,value_difference,turn_gae -svg curves.svg
//	go run ./bench/learning -spec examples/calc/spec.yaml -seeds 3 \
//	    -variants 'training.lag=0,2,4' -and 'loss.correction=none,decoupled'
package main
