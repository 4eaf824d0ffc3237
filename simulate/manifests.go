package simulate

import "fmt"

func one[T any](w *World, of ...T) T { return of[w.rand.IntN(len(of))] }

func (u *user) deployment(name string) string {
	w := u.w
	image := one(w, "app:1", "app:2", "app:3", "app:4", "app:5", "crash:1", "bad:1")
	if w.opts.Quiet {
		image = "app:1"
	}
	strategy := one(w,
		"rollingUpdate: {maxSurge: 1, maxUnavailable: 0}", "rollingUpdate: {maxSurge: 25%, maxUnavailable: 25%}",
		"rollingUpdate: {maxSurge: 0, maxUnavailable: 1}", "rollingUpdate: {maxSurge: 2, maxUnavailable: 2}", "type: Recreate")
	return fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: %s}
spec:
  replicas: %d
  minReadySeconds: %d
  selector: {matchLabels: {app: %s}}
  strategy:
    %s
  template:
    metadata: {labels: {app: %s}}
    spec:
      terminationGracePeriodSeconds: %d
      automountServiceAccountToken: false
      containers:
      - name: main
        image: %s
        resources: {requests: {cpu: %s, memory: 64Mi}}
`, name, w.rand.IntN(min(4, 2*len(w.nodes))+1), one(w, 0, 0, 5), name, strategy, name, one(w, 2, 30), image, one(w, "100m", "300m"))
}

// edge holds a port of its node and runs on some nodes only.
func (u *user) edge() string {
	w := u.w
	place := one(w, "", "nodeSelector: {kubernetes.io/hostname: n1}")
	replicas := 1
	if place == "" {
		replicas = 1 + w.rand.IntN(len(w.nodes))
	}
	return fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: edge}
spec:
  replicas: %d
  selector: {matchLabels: {app: edge}}
  strategy:
    rollingUpdate: {maxSurge: 0, maxUnavailable: 1}
  template:
    metadata: {labels: {app: edge}}
    spec:
      %s
      automountServiceAccountToken: false
      containers:
      - name: main
        image: %s
        ports:
        - {containerPort: 80, hostPort: 8080}
        env:
        - name: K
          valueFrom: {configMapKeyRef: {name: settings, key: k, optional: true}}
`, replicas, place, one(w, "app:1", "app:2", "app:3"))
}

func (u *user) job(name string) string {
	w := u.w
	extra := one(w, "", "", "\n  ttlSecondsAfterFinished: 30")
	return fmt.Sprintf(`apiVersion: batch/v1
kind: Job
metadata: {name: %s}
spec:
  completions: %d
  parallelism: %d
  backoffLimit: %d%s
  template:
    spec:
      restartPolicy: %s
      automountServiceAccountToken: false
      containers:
      - name: main
        image: job:1
        resources: {requests: {cpu: 50m}}
`, name, 1+w.rand.IntN(4), 1+w.rand.IntN(3), one(w, 1, 6), extra, one(w, "Never", "OnFailure"))
}

func (u *user) cronJob(name string) string {
	w := u.w
	return fmt.Sprintf(`apiVersion: batch/v1
kind: CronJob
metadata: {name: %s}
spec:
  schedule: "* * * * *"
  concurrencyPolicy: %s
  successfulJobsHistoryLimit: 1
  failedJobsHistoryLimit: 1
  suspend: %v
  jobTemplate:
    spec:
      backoffLimit: 2
      template:
        spec:
          restartPolicy: Never
          automountServiceAccountToken: false
          containers:
          - name: main
            image: job:1
            resources: {requests: {cpu: 50m}}
`, name, one(w, "Allow", "Forbid", "Replace"), w.rand.IntN(4) == 0)
}

// statefulSet is of pods that have to leave a lost node soon.
func (u *user) statefulSet() string {
	w := u.w
	return fmt.Sprintf(`apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: %d
  serviceName: db
  podManagementPolicy: OrderedReady
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      terminationGracePeriodSeconds: %d
      tolerations:
      - {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 5}
      - {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 5}
      automountServiceAccountToken: false
      containers:
      - name: main
        image: %s
        resources: {requests: {cpu: 50m, memory: 64Mi}}
`, 1+w.rand.IntN(min(3, len(w.nodes))), one(w, 2, 30), one(w, "app:1", "app:2", "app:3", "crash:1", "bad:1"))
}

func (u *user) daemonSet() string {
	w := u.w
	return fmt.Sprintf(`apiVersion: apps/v1
kind: DaemonSet
metadata: {name: log}
spec:
  selector: {matchLabels: {app: log}}
  updateStrategy:
    rollingUpdate: {%s}
  template:
    metadata: {labels: {app: log}}
    spec:
      terminationGracePeriodSeconds: 2
      automountServiceAccountToken: false
      containers:
      - name: main
        image: %s
        resources: {requests: {cpu: 20m, memory: 16Mi}}
`, one(w, "maxUnavailable: 1", "maxUnavailable: 2", "maxSurge: 1, maxUnavailable: 0"), one(w, "app:1", "app:2", "crash:1", "bad:1"))
}

// bounds are a quota and a budget.
func (u *user) bounds() string {
	w := u.w
	return fmt.Sprintf(`apiVersion: v1
kind: ResourceQuota
metadata: {name: bounds}
spec:
  hard: {pods: "%s"}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec:
  minAvailable: %d
  selector: {matchExpressions: [{key: app, operator: In, values: [web-0, web-1, web-2]}]}
`, one(w, "6", "20", "60"), 1+w.rand.IntN(3))
}

func (u *user) service() string {
	return fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  selector: {app: web-%d}
  ports: [{port: 80}]
`, u.w.rand.IntN(3))
}
