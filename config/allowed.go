package config

import (
	"slices"
	"strconv"

	"github.com/bmatcuk/doublestar/v4"
)

// AllowsImage says whether allowed_images lets a job use an image, whose variables are expanded: GitLab's rule. Everything
// is allowed where the list is empty. A pattern has to match the whole reference as the job writes it: `*` within one part
// between slashes, `**` over any number of them. The image of the table itself and the helper image always are.
func (k Kubernetes) AllowsImage(image string) bool { return k.allows(k.AllowedImages, image) }

// AllowsService does it for allowed_services and the image of a service that a job brings.
func (k Kubernetes) AllowsService(image string) bool { return k.allows(k.AllowedServices, image) }

// allows doesn't expand variables in patterns, as GitLab's kubernetes executor doesn't: it is the job that sets them.
func (k Kubernetes) allows(patterns []string, image string) bool {
	return len(patterns) == 0 || image == k.Image || image == k.HelperImage ||
		slices.ContainsFunc(patterns, func(pattern string) bool {
			matches, err := doublestar.Match(pattern, image)
			return matches && err == nil
		})
}

// AllowsUser says whether allowed_users lets a job choose the user (image:kubernetes:user). Everybody but root is allowed
// where the list is empty; root has to be on it.
func (k Kubernetes) AllowsUser(uid int64) bool { return allowsID(k.AllowedUsers, uid) }

// AllowsGroup does it for allowed_groups.
func (k Kubernetes) AllowsGroup(gid int64) bool { return allowsID(k.AllowedGroups, gid) }

func allowsID(allowed []string, id int64) bool {
	if len(allowed) == 0 {
		return id != 0
	}
	return slices.ContainsFunc(allowed, func(text string) bool {
		n, err := strconv.ParseInt(text, 10, 64)
		return err == nil && n == id
	})
}
