package preflight

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/authn/kubernetes"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// reference is an image together with whatever decides whether it can be pulled.
type reference struct {
	namespace string
	image     string
	policy    corev1.PullPolicy
	secrets   string // names of the pull secrets, joined by commas
}

// login is what one pull secret holds.
type login struct {
	secret   string
	keychain authn.Keychain
	err      error // why it can't be used
}

// images asks the registries for the manifests of all images of the pools' pods, with the pull secrets that the pods have.
func images(ctx context.Context, o Options, targets []*target) []Result {
	references := referencesOf(targets)
	logins, results := loginsOf(ctx, o, references)
	checked := make([]Result, len(references))
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i, ref := range references {
		group.Go(func() error {
			var own []login
			for _, secret := range names(ref.secrets) {
				own = append(own, logins[ref.namespace+"/"+secret])
			}
			checked[i] = ref.check(ctx, own)
			return nil
		})
	}
	_ = group.Wait()
	return append(results, checked...)
}

func names(joined string) []string {
	return strings.FieldsFunc(joined, func(r rune) bool { return r == ',' })
}

// referencesOf are the images of the pools, each once for a namespace and its pull secrets.
func referencesOf(targets []*target) []reference {
	var references []reference
	for _, p := range targets {
		var secrets []string
		for _, s := range p.pod.Spec.ImagePullSecrets {
			secrets = append(secrets, s.Name)
		}
		for _, c := range slices.Concat(p.pod.Spec.InitContainers, p.pod.Spec.Containers) {
			ref := reference{p.namespace(), c.Image, c.ImagePullPolicy, strings.Join(secrets, ",")}
			if len(secrets) == 0 {
				ref.namespace = "" // nothing of the namespace matters
			}
			if !slices.Contains(references, ref) {
				references = append(references, ref)
			}
		}
	}
	return references
}

// loginsOf reads the pull secrets, by namespace/name. What is wrong with one is a result.
func loginsOf(ctx context.Context, o Options, references []reference) (map[string]login, []Result) {
	logins := map[string]login{}
	var results []Result
	for _, ref := range references {
		for _, secret := range names(ref.secrets) {
			key := ref.namespace + "/" + secret
			if _, done := logins[key]; done {
				continue
			}
			l, trouble := readLogin(ctx, o, ref.namespace, secret)
			logins[key] = l
			if trouble != nil {
				results = append(results, *trouble)
			}
		}
	}
	return logins, results
}

func readLogin(ctx context.Context, o Options, namespace, name string) (login, *Result) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	r := Result{Check: Image, Namespace: namespace, Object: "secret/" + name}
	secret, err := o.Client.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		r.Status, r.Message, r.Fix = Warn, "the pull secret doesn't exist; nodes pull without it", "make it, or take it out of image_pull_secrets"
		return login{secret: name}, &r
	}
	if err != nil {
		r = unknown(r, "can't read the pull secret", err, "ask as somebody who may get secrets in namespace "+namespace)
		return login{secret: name, err: err}, &r
	}
	if secret.Type != corev1.SecretTypeDockerConfigJson && secret.Type != corev1.SecretTypeDockercfg {
		r.Status = Fail
		r.Message = fmt.Sprintf("it is of type %s, so it can't be a pull secret", secret.Type)
		r.Fix = "make it with `kubectl create secret docker-registry`"
		return login{secret: name}, &r
	}
	keychain, err := kubernetes.NewFromPullSecrets(ctx, []corev1.Secret{*secret})
	if err != nil { // which may quote the secret
		r.Status, r.Message, r.Fix = Fail, "its content can't be read as a login to registries", "make it with `kubectl create secret docker-registry`"
		return login{secret: name}, &r
	}
	return login{secret: name, keychain: keychain}, nil
}

// attempt is one way to ask for an image.
type attempt struct {
	secret string // "" = without a login
	auth   authn.Authenticator
}

// attempts are the logins that a node would try for a repository, in its order, or none where there is no login.
func attempts(repository authn.Resource, logins []login) (list []attempt, unreadable []string) {
	for _, l := range logins {
		if l.err != nil {
			unreadable = append(unreadable, l.secret)
		}
		if l.keychain == nil {
			continue
		}
		if auth, err := l.keychain.Resolve(repository); err == nil && auth != authn.Anonymous {
			list = append(list, attempt{l.secret, auth})
		}
	}
	if len(list) == 0 {
		list = []attempt{{auth: authn.Anonymous}}
	}
	return list, unreadable
}

func (ref reference) check(ctx context.Context, logins []login) Result {
	r := Result{Check: Image, Namespace: ref.namespace, Object: ref.image}
	if ref.policy == corev1.PullNever {
		r.Status, r.Message = Unknown, "pull_policy is never: each node has to have it already"
		return r
	}
	parsed, err := name.ParseReference(ref.image)
	if err != nil {
		r.Status, r.Message, r.Fix = Fail, "is no name that an image can have", "correct it in [runners.kubernetes]"
		return r
	}
	tries, unreadable := attempts(parsed.Context(), logins)
	var refused []string
	for _, try := range tries {
		err := head(ctx, parsed, try.auth)
		switch reason := reasonOf(err); reason {
		case exists:
			r.Status, r.Message = OK, "exists"+with(try.secret)
			return r
		case absent:
			r.Status = Fail
			r.Message = fmt.Sprintf("doesn't exist: %s has no %s", parsed.Context().RegistryStr(), strings.TrimPrefix(parsed.Name(), parsed.Context().RegistryStr()+"/"))
			r.Fix = "push it, or correct its name in [runners.kubernetes]"
			return r
		case refusedLogin:
			refused = append(refused, try.secret)
		default:
			r.Status = Unknown
			r.Message = "can't be asked for from here: " + trouble(err)
			r.Fix = "see whether the nodes reach " + parsed.Context().RegistryStr()
			return r
		}
	}
	return r.refused(parsed.Context().RegistryStr(), refused, unreadable)
}

// refused judges an image that the registry shows to none of those who asked. Registries say the same of images that don't
// exist, so that nobody learns which do.
func (r Result) refused(registry string, secrets, unreadable []string) Result {
	switch {
	case secrets[0] != "":
		r.Status = Fail
		r.Message = fmt.Sprintf("%s refuses the login in secret %s, or has no such image", registry, strings.Join(secrets, " and in "))
		r.Fix = "renew the secret, give that login the right to pull, or correct the image's name"
	case len(unreadable) > 0:
		r.Status = Unknown
		r.Message = fmt.Sprintf("%s wants a login, and the one in secret %s can't be read", registry, strings.Join(unreadable, " or in "))
		r.Fix = "ask as somebody who may get secrets in namespace " + r.Namespace
	default:
		r.Status = Warn
		r.Message = registry + " wants a login, or has no such image, and no pull secret of the pod is for it"
		r.Fix = "add a secret for it to image_pull_secrets; if the nodes have a login of their own, all is well"
	}
	return r
}

func with(secret string) string {
	if secret == "" {
		return ""
	}
	return ", with the login in secret " + secret
}

// head asks a registry for the manifest of an image.
func head(ctx context.Context, ref name.Reference, auth authn.Authenticator) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, err := remote.Head(ref, remote.WithContext(ctx), remote.WithAuth(auth), remote.WithUserAgent("idlecount"),
		remote.WithRetryBackoff(remote.Backoff{Steps: 1}))
	return err
}

// reason is what an answer of a registry means.
type reason int

const (
	exists reason = iota
	absent
	refusedLogin
	unclear
)

func reasonOf(err error) reason {
	if err == nil {
		return exists
	}
	if answer, ok := errors.AsType[*transport.Error](err); ok {
		switch answer.StatusCode {
		case http.StatusNotFound:
			return absent
		case http.StatusUnauthorized, http.StatusForbidden:
			return refusedLogin
		}
	}
	return unclear
}

// trouble is an error of a registry in words that hold no URL: the one of a token server has the login's name in it.
func trouble(err error) string {
	if answer, ok := errors.AsType[*transport.Error](err); ok {
		return fmt.Sprintf("it answers with HTTP status %d %s", answer.StatusCode, http.StatusText(answer.StatusCode))
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "no answer"
	}
	if request, ok := errors.AsType[*url.Error](err); ok { // one of several, where https and then http was tried
		err = request
	}
	for next := errors.Unwrap(err); next != nil; next = errors.Unwrap(next) {
		err = next
	}
	return err.Error()
}
