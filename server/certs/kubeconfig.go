package certs

import (
	"fmt"

	clientcmd "k8s.io/client-go/tools/clientcmd/api/v1"
	"sigs.k8s.io/yaml"
)

// Kubeconfig is the file with which kubectl signs in at url as the pair's user.
// It holds a key: write it with mode 0600.
func (a *Authority) Kubeconfig(cluster, url string, user Pair) ([]byte, error) {
	config := clientcmd.Config{
		Kind:           "Config",
		APIVersion:     "v1",
		CurrentContext: cluster,
		Clusters:       []clientcmd.NamedCluster{{Name: cluster, Cluster: clientcmd.Cluster{Server: url, CertificateAuthorityData: a.pem}}},
		AuthInfos:      []clientcmd.NamedAuthInfo{{Name: "admin", AuthInfo: clientcmd.AuthInfo{ClientCertificateData: user.Certificate, ClientKeyData: user.Key}}},
		Contexts:       []clientcmd.NamedContext{{Name: cluster, Context: clientcmd.Context{Cluster: cluster, AuthInfo: "admin"}}},
	}
	out, err := yaml.Marshal(config)
	if err != nil {
		return nil, fmt.Errorf("write a kubeconfig: %w", err)
	}
	return out, nil
}
