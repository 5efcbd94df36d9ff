// Package spec defines the training spec: the file that a user writes to train an agent,
// and the input of TrainingWorkflow. It holds the types, their defaults, validation and
// the published JSON Schema.
//
// It is a leaf. It reads spec files but starts nothing: a spec that passes
// [Spec.Validate] can still name a task file with a bad line, which package
// tasks reports. Unknown keys are errors, and all faults of a spec are reported
// at once, each with the path of its key.
package spec
