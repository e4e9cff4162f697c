// Package status is what a pool says of itself: the manager writes it into the pool's anchor, the CLI reads it.
package status

import (
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"idlecount.dev/idlecount/factory"
)

// Status is the JSON under factory.AnchorStatusKey in a pool's anchor. It changes only when something that a user would
// want to know changes; counts are not in it, they are read from the pods.
type Status struct {
	Runner     string     `json:"runner"` // name of the [[runners]] entry
	Image      string     `json:"image"`
	Shape      string     `json:"shape"`    // shape hash
	Template   string     `json:"template"` // template hash
	Policy     string     `json:"policy"`   // which policy is in force, for people
	Want       int        `json:"want"`     // idle pods wanted
	IdleTime   string     `json:"idle_time"`
	NextChange *time.Time `json:"next_change,omitempty"` // when another policy comes into force
	Shortfall  *Shortfall `json:"shortfall,omitempty"`
	// ReplacedBy is the pool that a change of the configuration has put in this one's place: the idle pods go as that one's
	// become Ready. Empty for a pool that is configured, and for one that has left the configuration without a successor.
	ReplacedBy string `json:"replaced_by,omitempty"`
	// ConfigError is why the manager can't use the configuration file as it is now; the one before stays in force.
	ConfigError string `json:"config_error,omitempty"`
	// Lease is the leader election lease of the managers of this pool, "namespace/name". It doesn't change when the leader
	// does; the CLI reads it to say whether anybody manages the pool at all.
	Lease string `json:"lease,omitempty"`
}

// Shortfall is why a pool has fewer idle pods than it wants, or none yet of what a changed configuration makes.
type Shortfall struct {
	Reason  Reason    `json:"reason"`
	Message string    `json:"message"` // the server's own words
	Since   time.Time `json:"since"`
	// Replacing is true where enough pods are idle, but they are those of the configuration before: their replacements are
	// what is missing.
	Replacing bool `json:"replacing,omitempty"`
}

// Reason is the kind of a shortfall; the set is small and fixed, since it is a metric label too.
type Reason string

// The reasons.
const (
	ImagePull     Reason = "ImagePull"     // the kubelet can't get an image
	Quota         Reason = "Quota"         // a ResourceQuota refuses the pod
	Admission     Reason = "Admission"     // the API server refuses the pod for another reason
	Unschedulable Reason = "Unschedulable" // no node has room, or none fits
	Crash         Reason = "Crash"         // containers end by themselves
	Config        Reason = "Config"        // the kubelet can't make the container: a missing Secret, a bad user …
	Slow          Reason = "Slow"          // containers take long to start, and nothing says why
	Limit         Reason = "Limit"         // the runner's limit is reached
	Access        Reason = "Access"        // the manager lacks a permission
	API           Reason = "API"           // the API server can't do what is asked: it is away, overloaded, the namespace is missing
)

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
