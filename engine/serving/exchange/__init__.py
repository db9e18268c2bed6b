"""What is known of a request once it is over, for those who keep or pass on such things. Texts are for those alone who
were told to take them."""

from engine.serving.exchange.exchange import Exchange
from engine.serving.exchange.facts import Facts
from engine.serving.exchange.outlet import Outlet, Sink
