"""The functions of scipy, statsmodels and scikit-learn used here, which ship without types.

They pass through as they are; keeping them in one place lets the rest be checked strictly.
"""
# pyright: reportMissingTypeStubs=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false

from typing import Any

import scipy.ndimage
import scipy.optimize
import scipy.special
import scipy.stats
import sklearn.decomposition
import sklearn.ensemble
import sklearn.feature_extraction.text
import sklearn.linear_model
import sklearn.metrics
import sklearn.metrics.pairwise
import sklearn.model_selection
import sklearn.neighbors
import sklearn.pipeline
import sklearn.preprocessing
import statsmodels.stats.contingency_tables
import statsmodels.stats.inter_rater
import statsmodels.stats.power
import statsmodels.stats.proportion

binned_statistic: Any = scipy.stats.binned_statistic
find_root: Any = scipy.optimize.brentq
minimize_scalar: Any = scipy.optimize.minimize_scalar
find_t_quantile: Any = scipy.special.stdtrit
noncentral_t: Any = scipy.stats.nct
normal: Any = scipy.stats.norm
student_t: Any = scipy.stats.t
uniform_filter1d: Any = scipy.ndimage.uniform_filter1d

cohens_kappa: Any = statsmodels.stats.inter_rater.cohens_kappa
mcnemar: Any = statsmodels.stats.contingency_tables.mcnemar
proportion_confint: Any = statsmodels.stats.proportion.proportion_confint
TTestPower: Any = statsmodels.stats.power.TTestPower

confusion_matrix: Any = sklearn.metrics.confusion_matrix
cosine_distances: Any = sklearn.metrics.pairwise.cosine_distances

ExtraTreesClassifier: Any = sklearn.ensemble.ExtraTreesClassifier
GroupKFold: Any = sklearn.model_selection.GroupKFold
HashingVectorizer: Any = sklearn.feature_extraction.text.HashingVectorizer
LogisticRegression: Any = sklearn.linear_model.LogisticRegression
NearestNeighbors: Any = sklearn.neighbors.NearestNeighbors
RandomForestClassifier: Any = sklearn.ensemble.RandomForestClassifier
StandardScaler: Any = sklearn.preprocessing.StandardScaler
TfidfTransformer: Any = sklearn.feature_extraction.text.TfidfTransformer
TfidfVectorizer: Any = sklearn.feature_extraction.text.TfidfVectorizer
TruncatedSVD: Any = sklearn.decomposition.TruncatedSVD
make_pipeline: Any = sklearn.pipeline.make_pipeline
make_union: Any = sklearn.pipeline.make_union
