package workflows

import (
	"bytes"
	"encoding/json"
)

// TrainingInput is the input of TrainingWorkflow: a training spec, exactly as a
// user wrote it in JSON. After a continue-as-new it is {"resume": state} instead.
type TrainingInput struct {
	Spec   json.RawMessage
	Resume *TrainingState
}

type resumeInput struct {
	Resume *TrainingState `json:"resume"`
}

// MarshalJSON writes the spec itself, so that the workflow's input is the spec.
func (in TrainingInput) MarshalJSON() ([]byte, error) {
	if in.Resume != nil {
		return json.Marshal(resumeInput{in.Resume})
	}
	return in.Spec, nil
}

// UnmarshalJSON keeps a spec as it is: PrepareRun reads it strictly and reports
// all its faults together, which a decoder here could not.
func (in *TrainingInput) UnmarshalJSON(data []byte) error {
	if bytes.HasPrefix(data, []byte(`{"resume":`)) {
		var r resumeInput
		if err := json.Unmarshal(data, &r); err != nil {
			return err
		}
		in.Resume = r.Resume
		return nil
	}
	in.Spec = bytes.Clone(data)
	return nil
}
