package backup

// Until returns options with a function that is called after each stage.
func (o Options) Until(reached func(stage string) error) Options {
	o.reached = reached
	return o
}

// StageFleetUntil is StageFleet with a function that is called after each stage.
var StageFleetUntil = (*Source).stageFleet
