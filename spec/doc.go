// Package spec defines the training spec: the file that a user writes to train an agent,
// and the input of TrainingWorkflow. It holds the types, their defaults, validation and
// the published JSON Schema.
//
// The package reads spec files, but starts nothing, and imports no other package of
// Fulgurite except credit. A spec that passes [Spec.Validate] can still name a task file
// with a bad line, which package tasks reports. Unknown keys are errors. All faults of a
// spec are reported at once, as [Faults], each with the path of its key.
package spec
