package update

import "github.com/fulgurite/fulgurite/model"

// Lower returns the advice for a version whose updates diverged.
func Lower(run Run, id model.VersionID, rate string) string {
	return updatePlan{Target: Target{ID: id}, run: run}.lower(rate)
}
