package approval_test

// Keys that are refused.
const (
	p224 = `-----BEGIN PUBLIC KEY-----
ME4wEAYHKoZIzj0CAQYFK4EEACEDOgAEeSV2mTTmPvJBMdH251NZXmlGBxM3VMxs
23yqcJ0udEmRAkhM9auf1UZqA4Pie/RcX+c9IJEvVZg=
-----END PUBLIC KEY-----
`
	rsa1024 = `-----BEGIN PUBLIC KEY-----
MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQC7E2tOJaQE2MkKSC1U4Wxju+YI
ofG2kDAc/X23Rq0KbioekCacDd3on/jZhAhk7vXgMDahpsZiokzDFGLhSKs6o6Gw
t1pOpVt8csjqKFj2L59oGzzvxYQyVXx5/cASDRbuIMWehPaum48DPpqxk4DxVJyU
wXuuazLzIzppjExywwIDAQAB
-----END PUBLIC KEY-----
`
)
