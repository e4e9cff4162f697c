// Package status is what a capacity says of itself: the manager writes it into the capacity's anchor, the CLI reads it and
// counts the pods.
package status

import (
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"idlecount.dev/idlecount/factory"
)

// Status is the JSON under factory.AnchorStatusKey in a capacity's anchor. Counts of pods are not in it.
type Status struct {
	Runner     string     `json:"runner"`          // name of the [[runners]] entry
	Image      string     `json:"image,omitempty"` // the only job image that it is for; "" = any that has no room of its own
	Strategy   string     `json:"strategy"`        // "pause" or "buffer"
	Policy     string     `json:"policy"`          // which policy is in force, for people
	Want       int        `json:"want"`            // jobs for which room is wanted
	Hold       int        `json:"hold"`            // and asked for: less where something bounds it, more while surplus cools down
	Held       int        `json:"held,omitempty"`  // of a buffer: for so many its autoscaler says that it provides
	IdleTime   string     `json:"idle_time"`
	Surplus    *time.Time `json:"surplus,omitempty"`     // of a buffer: since when it holds more than is wanted
	NextChange *time.Time `json:"next_change,omitempty"` // when another policy comes into force
	Trouble    *Trouble   `json:"trouble,omitempty"`
	Lease      string     `json:"lease,omitempty"` // of the managers, namespace/name
	// ConfigError is why the manager can't use the configuration file as it is now; the one before stays in force.
	ConfigError string `json:"config_error,omitempty"`
}

// Trouble is why less is held than is wanted, as far as the manager knows; that pause pods wait for a node is said by the
// pods.
type Trouble struct {
	Reason  Reason    `json:"reason"`
	Message string    `json:"message"`
	Since   time.Time `json:"since"`
}

// Reason is the kind of a trouble; the set is small and fixed, since it is a metric label too.
type Reason string

// The reasons.
const (
	Limit     Reason = "Limit"     // limit of [[runners]] or max_pause_pods
	Quota     Reason = "Quota"     // a ResourceQuota leaves no room, or none beside the headroom for jobs
	Priority  Reason = "Priority"  // the PriorityClass is missing, or jobs couldn't preempt it
	Admission Reason = "Admission" // the API server refuses the pause pods
	Config    Reason = "Config"    // how large a job is can't be worked out of the configuration
	Buffer    Reason = "Buffer"    // the cluster has no CapacityBuffers, or no autoscaler that provides for ours
	Access    Reason = "Access"    // the manager lacks a permission
	API       Reason = "API"       // the API server can't do what is asked
)

// IsAnchor tells the anchor of a capacity from other ConfigMaps that carry its label, such as a copy of it.
func IsAnchor(cm *corev1.ConfigMap) bool { return cm.Labels[factory.LabelCapacity] == cm.Name }

// Of reads the status from an anchor.
func Of(anchor *corev1.ConfigMap) (Status, error) {
	var s Status
	if err := json.Unmarshal([]byte(anchor.Data[factory.AnchorStatusKey]), &s); err != nil {
		return Status{}, fmt.Errorf("read the status in ConfigMap %s/%s: %w", anchor.Namespace, anchor.Name, err)
	}
	return s, nil
}

// Encode writes a status as it stands in an anchor.
func (s Status) Encode() string {
	b, _ := json.Marshal(s) //nolint:errchkjson // no field of Status can fail
	return string(b)
}
